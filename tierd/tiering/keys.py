"""Keys that segments in the bucket are encrypted under: none that is still used may go."""

from tierd.base.errors import StartRefused
from tierd.remote.keyring import KeyRing
from tierd.tiering.catalog import Catalog


def check_keys(catalog: Catalog, ring: KeyRing) -> None:
    """Raises StartRefused when the ring lacks a key that segments need."""
    missing = {key_id: uses for key_id, uses in catalog.key_uses().items() if key_id not in ring.ids}
    if missing:
        counts = "; ".join(f"{segments} segments under {key_id!r}" for key_id, (segments, _) in sorted(missing.items()))
        raise StartRefused(
            f"remote.encryption.key.files lacks keys that the bucket still needs: {counts}; name their files again."
            " `tierd keys rotate` moves segments to the active key, and one that none needs any more may go"
        )
