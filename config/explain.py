"""What the settings mean for the data: where it goes, when it leaves the disk, when the bucket forgets it."""

from collections.abc import Iterator

from tierd.base.session import ANONYMOUS
from tierd.config.model import Settings
from tierd.config.topic import TopicSettings
from tierd.config.units import show_bytes, show_ms


def explain(settings: Settings) -> list[str]:
    """One sentence a line, for the defaults and each topic named in tierd.toml; what clients set is not in it.

    What is strange about the settings, though not wrong, is `cautions`; what differs for Kafka's own topics `adopted`.
    """
    if settings.is_archive:
        every = show_ms(settings.remote.refresh_interval_ms)
        return [f"archive: {settings.remote.url}, only read, looked at every {every}; state: {settings.state_dir}"]
    layers = settings.topic_defaults
    lines = [f"data: {', '.join(map(str, settings.data_dirs))}; state: {settings.state_dir}"]
    lines += _bucket(settings, layers.resolve(""))
    for topic in sorted(settings.topics):
        resolved = layers.resolve(topic)
        lines.append(f"topic {topic}: " + "; ".join(_fate(resolved)))
    return lines


def adopted(settings: Settings) -> str | None:
    """What is in force for topics that Kafka wrote here; None when it is the same as for all others."""
    layers = settings.topic_defaults
    topic = layers.resolve("", adopted=True)
    return None if topic == layers.resolve("") else "topics that Kafka wrote here: " + "; ".join(_fate(topic))


def cautions(settings: Settings) -> list[str]:
    """What is allowed and hardly ever meant."""
    return [*_of_bucket(settings.remote.url or ""), *_of_listeners(settings), *_of_access(settings)]


def _of_bucket(url: str) -> Iterator[str]:
    prefix = url.removeprefix("s3://").partition("/")[2]
    if url.startswith("s3://") and prefix and not prefix.endswith("/"):
        begin = f'keys begin with "{prefix}tierd/"'
        yield f'remote.url = "{url}": the prefix has no / at its end, so {begin}; write "{url}/"'


def _of_listeners(settings: Settings) -> Iterator[str]:
    readable = {"PLAIN", "OAUTHBEARER"}
    for name, listener in settings.endpoints.items():
        if listener.security_protocol == "SASL_PLAINTEXT" and not listener.address.is_loopback:
            for mechanism in sorted(readable & listener.sasl.mechanisms):
                what = "passwords" if mechanism == "PLAIN" else "tokens"
                yield f"listener {name}: {mechanism} sends {what} that others on the network can read; use SASL_SSL"


def _of_access(settings: Settings) -> Iterator[str]:
    access = settings.access
    if access.authorizer and not access.super_users and not access.allow_without_acl:
        yield "authorizer.enable without super.users: nobody may make the first access rule"
    if not access.authorizer and access.super_users:
        yield "super.users without authorizer.enable: everybody may do everything"
    if access.authorizer and ANONYMOUS in access.super_users:
        yield f"super.users has {ANONYMOUS}: whoever does not say who it is may do everything"


def _bucket(settings: Settings, topic: TopicSettings) -> Iterator[str]:
    if settings.remote.url is None:
        yield "bucket: none (--remote); everything stays on this disk"
    elif topic.remote_storage_enable:
        yield f"bucket: {settings.remote.url}; a segment is copied when it closes: {_closing(topic)}"
    else:
        yield f"bucket: {settings.remote.url}; only topics with remote.storage.enable=true are copied"
    yield from _fate(topic)


def _closing(topic: TopicSettings) -> str:
    ages = [topic.segment_ms, topic.tierd_archive_max_age_ms]
    age = min((one for one in ages if one is not None), default=None)
    by_age = "" if age is None else f", or {show_ms(age)} old"
    return f"{show_bytes(topic.roll_bytes)} large{by_age}"


def _fate(topic: TopicSettings) -> Iterator[str]:
    if topic.remote_storage_enable:
        limits = _limits(topic.local_retention_ms, topic.local_retention_bytes)
        yield (
            f"it leaves the disk {limits}, and only when its copy is committed"
            if limits
            else "it never leaves the disk"
        )
    where = "the bucket" if topic.remote_storage_enable else "this disk"
    if not topic.deletes:
        yield f"{where} forgets nothing: cleanup.policy={','.join(sorted(topic.cleanup_policy)) or 'nothing'}"
        return
    total = _limits(topic.retention_ms, topic.retention_bytes)
    later = f", {show_ms(topic.tierd_delete_delay_ms)} after its release" if topic.remote_storage_enable else ""
    yield f"{where} forgets it {total}{later}" if total else f"{where} never forgets it"


def _limits(age_ms: int | None, size_bytes: int | None) -> str:
    parts = []
    if age_ms is not None:
        parts.append(f"when {show_ms(age_ms)} old")
    if size_bytes is not None:
        parts.append(f"above {show_bytes(size_bytes)} a partition")
    return " or ".join(parts)
