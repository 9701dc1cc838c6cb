"""Settings of what is done to segments on their way into the bucket."""

from pathlib import Path
from typing import Annotated

from tierd.config.kinds import Text
from tierd.config.places import Places
from tierd.config.section import Section, Setting


class Encryption(Section):
    """The key ring."""

    key_files: Annotated[
        tuple[Path, ...],
        Setting(
            "remote.encryption.key.files",
            Places(none=True),
            "Private RSA keys in PEM, under which the data keys of segments in the bucket are wrapped. A key's id is "
            "its file's name without the ending (key1.pem: key1). All that segments still use must be there.",
        ),
    ] = ()
    active: Annotated[
        str | None,
        Setting(
            "remote.encryption.key.active",
            Text(),
            "Id of the key for new segments, all of which are encrypted then (docs/keys.md). Not set: none is.",
        ),
    ] = None
