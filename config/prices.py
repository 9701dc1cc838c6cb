"""What the bucket costs: the price table of `tierd cost` and `tierd plan`.

The defaults are S3's list prices in us-east-1 at the lowest volume (aws.amazon.com/s3/pricing): yours are others.
"""

from typing import Annotated

from tierd.config.kinds import Price, Text
from tierd.config.section import Section, Setting


def _storage(name: str, what: str) -> Setting:
    return Setting(f"prices.storage.{name}", Price(), f"Of a GiB for a month in {what}.")


class Storage(Section):
    """By storage class; a class that is not here costs as STANDARD does."""

    standard: Annotated[float, _storage("standard", "STANDARD, and in any class without a price")] = 0.023
    intelligent_tiering: Annotated[float, _storage("intelligent_tiering", "INTELLIGENT_TIERING")] = 0.023
    standard_ia: Annotated[float, _storage("standard_ia", "STANDARD_IA")] = 0.0125
    onezone_ia: Annotated[float, _storage("onezone_ia", "ONEZONE_IA")] = 0.01
    glacier_ir: Annotated[float, _storage("glacier_ir", "GLACIER_IR")] = 0.004
    glacier: Annotated[float, _storage("glacier", "GLACIER")] = 0.0036
    deep_archive: Annotated[float, _storage("deep_archive", "DEEP_ARCHIVE")] = 0.00099

    def of(self, storage_class: str) -> float:
        """Of a class as S3 writes it."""
        price: float = getattr(self, storage_class.lower(), self.standard)
        return price


class Prices(Section):
    """Nothing depends on them but what is shown."""

    currency: Annotated[str, Setting("prices.currency", Text(), "Of all prices; only shown.")] = "USD"
    write_requests: Annotated[
        float, Setting("prices.write.requests", Price(), "Of 1,000 PUT, COPY, POST and LIST requests.")
    ] = 0.005
    read_requests: Annotated[
        float, Setting("prices.read.requests", Price(), "Of 1,000 GET, HEAD and other requests.")
    ] = 0.0004
    delete_requests: Annotated[float, Setting("prices.delete.requests", Price(), "Of 1,000 DELETE requests.")] = 0.0
    egress: Annotated[
        float,
        Setting(
            "prices.egress",
            Price(),
            "Of a GiB that is read. The default is S3's to the internet; 0 for a tierd in the bucket's own region.",
        ),
    ] = 0.09
    storage: Storage = Storage()
