"""What the start tells about the data's fate."""

from pathlib import Path

import pytest

from tierd.config.explain import adopted, cautions, explain
from tierd.config.load import Options, load
from tierd.config.model import Settings


def told(*sets: str, remote: str | None = "file:/archive") -> list[str]:
    return explain(_settings(*sets, remote=remote))


def _settings(*sets: str, remote: str | None = "file:/archive") -> Settings:
    return load(Options(data=(Path("/d"),), state=Path("/s"), remote=remote, sets=sets))


def test_the_defaults_keep_an_archive() -> None:
    assert told() == [
        "data: /d; state: /s",
        "bucket: file:/archive; a segment is copied when it closes: 1GiB large, or 1h old",
        "it leaves the disk when 1d old, and only when its copy is committed",
        "the bucket never forgets it",
    ]


def test_without_a_bucket_it_stays_here() -> None:
    assert told(remote=None) == [
        "data: /d; state: /s",
        "bucket: none (--remote); everything stays on this disk",
        "this disk never forgets it",
    ]


def test_what_differs_for_topics_that_kafka_wrote() -> None:
    assert adopted(_settings()) == "topics that Kafka wrote here: it never leaves the disk; the bucket never forgets it"


@pytest.mark.parametrize(
    ("url", "cautioned"),
    [("s3://b/x", True), ("s3://b/x/y", True), ("s3://b/x/", False), ("s3://b/", False), ("s3://b", False)],
)
def test_a_prefix_without_its_slash_is_pointed_out(url: str, cautioned: bool) -> None:
    assert [f'write "{url}/"' in line for line in cautions(_settings(remote=url))] == [True] * cautioned
    assert not cautions(_settings(remote="file:/archive"))


def test_passwords_that_others_can_read_are_pointed_out() -> None:
    asked = ("listener.security.protocol=SASL_PLAINTEXT", "listener.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256")
    (line,) = cautions(_settings(*asked, "listener.address=h:1"))
    assert line == "listener SASL_PLAINTEXT: PLAIN sends passwords that others on the network can read; use SASL_SSL"
    assert not cautions(_settings(*asked))


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        (
            ["retention.ms=7d", "retention.bytes=1GiB"],
            "the bucket forgets it when 7d old or above 1GiB a partition, 1d af",
        ),
        (["retention.ms=2h"], "it leaves the disk when 2h old, and only"),
        (["local.retention.ms=-1"], "it never leaves the disk"),
        (["cleanup.policy=compact"], "the bucket forgets nothing: cleanup.policy=compact"),
        (["remote.storage.enable=false"], "only topics with remote.storage.enable=true are copied"),
        (
            ["topics.t.retention.ms=30d"],
            "topic t: it leaves the disk when 1d old, and only when its copy is committed; the",
        ),
    ],
)
def test_every_limit_is_told(sets: list[str], line: str) -> None:
    assert any(line in one for one in told(*sets))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("authorizer.enable=true",), "nobody may make the first"),
        (("super.users=User:a",), "without authorizer.enable"),
        (("authorizer.enable=true", "super.users=User:a;User:ANONYMOUS"), "whoever does not say who it is"),
        (("authorizer.enable=true", "super.users=User:a"), None),
        (("authorizer.enable=true", "allow.everyone.if.no.acl.found=true"), None),
    ],
)
def test_rules_that_nobody_can_make_or_everybody_can_pass(sets: tuple[str, ...], said: str | None) -> None:
    found = cautions(_settings(*sets))
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
