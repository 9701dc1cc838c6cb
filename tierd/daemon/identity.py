"""Who this run is, as the bucket's claims name it (remote/LAYOUT.md): a copied data directory is another holder."""

import os
import socket
from pathlib import Path

from tierd.base.ids import ID_BYTES, Uuid
from tierd.remote.owner import Holder
from tierd.tiering.options import Identity

_MACHINE_ID = Path("/etc/machine-id")


def identity(directory_id: Uuid, inode: int) -> Identity:
    """A new incarnation for each call. Without a machine id (containers) the host name stands for it."""
    machine = _MACHINE_ID.read_text().strip() if _MACHINE_ID.exists() else ""
    host = socket.gethostname()
    holder = Holder(directory_id=str(directory_id), machine_id=machine or host, inode=inode)
    return Identity(holder=holder, host=host, incarnation=Uuid(os.urandom(ID_BYTES)))
