"""A user of a SeaweedFS server whose access key is rotated, and the AWS credentials file that names it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from kit.tiers import until
from kit.weed import ACCESS_KEY, SECRET_KEY, Weed

SERVER = ("-s3.iam.readOnly=false",)
"""What the server has to be started with."""
_USER = "rotated"


class Rotation:
    """*folder* gets the file `credentials`."""

    def __init__(self, server: Weed, folder: Path) -> None:
        self.file = folder / "credentials"
        self._endpoint = server.endpoint
        self._iam: Any = boto3.client(
            "iam",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        with suppress(self._iam.exceptions.EntityAlreadyExistsException):
            self._iam.create_user(UserName=_USER)
        allow = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        self._iam.put_user_policy(UserName=_USER, PolicyName="all", PolicyDocument=document)
        self.key = self._create()

    def _create(self) -> str:
        """A new key, in the file once the server knows it; by renaming, as tools replace it."""
        made = self._iam.create_access_key(UserName=_USER)["AccessKey"]
        until("the new key works", lambda: self._works(made))
        new = self.file.with_suffix(".new")
        new.write_text(
            f"[default]\naws_access_key_id = {made['AccessKeyId']}\naws_secret_access_key = {made['SecretAccessKey']}\n"
        )
        new.replace(self.file)
        key: str = made["AccessKeyId"]
        return key

    def _works(self, made: Mapping[str, str]) -> bool:
        client = boto3.client(
            "s3",
            endpoint_url=self._endpoint,
            region_name="us-east-1",
            aws_access_key_id=made["AccessKeyId"],
            aws_secret_access_key=made["SecretAccessKey"],
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1, "mode": "standard"}),
        )
        try:
            client.put_object(Bucket="ready", Key="key", Body=b"")
        except ClientError:
            return False
        finally:
            client.close()
        return True

    def forbid_deletes(self) -> None:
        """From now on the user may list, read and write, and no more."""
        actions = ["s3:GetObject", "s3:PutObject", "s3:ListBucket"]
        allow = {"Effect": "Allow", "Action": actions, "Resource": ["arn:aws:s3:::*"]}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        self._iam.put_user_policy(UserName=_USER, PolicyName="all", PolicyDocument=document)

    def rotate(self) -> None:
        """From now on the server refuses the old key."""
        old, self.key = self.key, self._create()
        self._iam.delete_access_key(UserName=_USER, AccessKeyId=old)

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_SHARED_CREDENTIALS_FILE": str(self.file), "AWS_CONFIG_FILE": str(self.file.with_name("config"))}
