"""`tierd keys`: makes keys, says which are in use, and moves segments from old ones to the active one."""

import os
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tierd.base.errors import Usage
from tierd.cli.client import ask
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.screen import print_json, size, verb_progress
from tierd.cli.verbs import report
from tierd.storage.disk import PosixDisk

KEY_BITS = 3072


@click.group("keys")
def keys() -> None:
    """Manage the keys that segments in the bucket are encrypted under."""


@keys.command("list")
@place_options
@json_option
def list_(config: Path | None, data: tuple[Path, ...], state: Path | None, as_json: bool) -> int:
    """Say of each key how many segments are encrypted under it. One with none may leave the settings."""
    rows = ask(settings_at(config, data, state).control_socket, "keys").result
    if as_json:
        print_json({"keys": rows})
        return 0
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        use = f"{row['segments']} segments, {size(row['bytes'])}"
        what = "active" if row["active"] else "needed" if row["segments"] else "not needed"
        click.echo(f"{row['id']:{width}}  {what:10}  {use}  {row['file'] or 'no file'}")
    return 0


@keys.command("add")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def add(file: Path, as_json: bool) -> int:
    """Make a new key: FILE gets the private half, which tierd needs, FILE.pub the public one.

    Its id is FILE's name without the ending. Nothing is overwritten, and no setting is changed: it says which to set.
    """
    file = file.absolute()
    public = file.with_name(f"{file.name}.pub")
    if ":" in file.stem:
        raise Usage(f"{file.stem!r}: a colon cannot be in a key's id")
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    _write(file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _write(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644)
    if as_json:
        print_json({"id": file.stem, "file": str(file), "public": str(public)})
        return 0
    click.echo(f"key {file.stem}: {file}")
    click.echo(
        "back it up apart from the bucket; then, in tierd.toml, beside the keys that are there:\n"
        f'  [remote.encryption]\n  key.files = [..., "{file}"]\n  key.active = "{file.stem}"\n'
        "start tierd again, and `tierd keys rotate` moves what is there to it",
        err=True,
    )
    return 0


def _write(path: Path, pem: bytes, mode: int) -> None:
    """A file that was not there before, for good. Raises Usage when there is one."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    except FileExistsError:
        raise Usage(f"{path} is there already; a key that is overwritten is lost") from None
    disk = PosixDisk()
    disk.write_new(path, pem)
    disk.fsync_file(path)
    disk.fsync_dir(path.parent)


@keys.command("rotate")
@place_options
@dry_run_option
@json_option
def rotate(config: Path | None, data: tuple[Path, ...], state: Path | None, dry_run: bool, as_json: bool) -> int:
    """Wrap the data keys of all encrypted segments under the active key, remote.encryption.key.active.

    Only manifests are written. It may be broken off and begun again: it goes on with what is left.
    """
    socket = settings_at(config, data, state).control_socket
    with verb_progress("rotate") as show:
        reply = ask(socket, "rotate keys", on_progress=show, dry_run=dry_run)
    report("would get another key" if dry_run else "got another key", reply, as_json=as_json)
    return reply.exit
