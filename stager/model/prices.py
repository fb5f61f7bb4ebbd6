"""A price table: nodes by the hour, bytes that leave a cloud, requests to a bucket, bytes kept.

May know: nothing above the model. One rule: a price has a provider, a region, a date and a source; money is a float of the table's one
currency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from stager.model.errors import InvalidInput

# The GB of AWS, Google and Azure's bills.
GB_BYTES = 2**30
# The month of AWS's storage bills.
MONTH_S = 730 * 3600.0


@dataclass(frozen=True, slots=True)
class Price:
    """`source` says where the figure comes from, in a sentence; `date` is when it held."""

    provider: str
    region: str
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class InstancePrice(Price):
    """`billed_every_s`: a bill grows in such steps; `own_disk`: its disk is in the price, so that a cache on it needs no volume."""

    name: str
    per_hour: float
    billed_every_s: float = 1.0
    billed_at_least_s: float = 60.0
    own_disk: bool = False


@dataclass(frozen=True, slots=True)
class Tier:
    """`per_gb` up to so many bytes of a month; None: for all the rest."""

    up_to_bytes: int | None
    per_gb: float


@dataclass(frozen=True, slots=True)
class EgressPrice(Price):
    """Of bytes that leave the cloud to the Internet; what comes in is free at all providers here. Tiers ascend, the last is open."""

    tiers: tuple[Tier, ...]


@dataclass(frozen=True, slots=True)
class RequestPrice(Price):
    """Of a bucket: GET and HEAD are reads; PUT, POST and LIST are writes."""

    reads_per_1000: float
    writes_per_1000: float


@dataclass(frozen=True, slots=True)
class StoragePrice(Price):
    """`kind`: `object` for a bucket, `volume` for a disk that is mounted."""

    kind: str
    per_gb_month: float


@dataclass(frozen=True, slots=True)
class PriceTable:
    """`origin` is the file it was read from, for messages."""

    currency: str
    date: str
    instances: tuple[InstancePrice, ...] = ()
    egress: tuple[EgressPrice, ...] = ()
    requests: tuple[RequestPrice, ...] = ()
    storage: tuple[StoragePrice, ...] = ()
    origin: str = ""

    def instance(self, name: str, region: str = "") -> InstancePrice:
        """Raises InvalidInput with what there is."""
        found = [entry for entry in self.instances if entry.name == name and region in ("", entry.region)]
        if found:
            return found[0]
        elsewhere = [entry.region for entry in self.instances if entry.name == name]
        if elsewhere:
            text = f"{self.origin} has no price of {name!r} in {region!r}, only in {', '.join(elsewhere)}"
        else:
            names = ", ".join(dict.fromkeys(entry.name for entry in self.instances))
            text = f"{self.origin} has no price of {name!r}; it has {names}"
        raise InvalidInput(f"{text}; add a line to a copy of it and give that with --prices", subject=name)


@dataclass(frozen=True, slots=True)
class ClusterPrices:
    """The prices that one cluster pays. None: the table has no such price there, and bills leave the line at nothing and say so in
    `missing`.
    """

    currency: str
    compute: InstancePrice
    io: InstancePrice
    egress: tuple[Tier, ...]
    requests: RequestPrice | None
    objects_per_gb_month: float
    volumes_per_gb_month: float
    missing: tuple[str, ...] = ()


def prices_for(table: PriceTable, compute: str, io: str, region: str = "") -> ClusterPrices:
    """The prices of a cluster of these instance types. The provider and region of the compute nodes decide about the rest. Raises
    InvalidInput for an unknown instance.
    """
    node = table.instance(compute, region)
    egress, requests = place_in(table.egress, node), place_in(table.requests, node)
    objects = place_in([entry for entry in table.storage if entry.kind == "object"], node)
    volumes = place_in([entry for entry in table.storage if entry.kind == "volume"], node)
    wanted = (("egress", egress), ("requests", requests), ("objects kept", objects), ("volumes", volumes))
    return ClusterPrices(
        currency=table.currency,
        compute=node,
        io=table.instance(io, region),
        egress=egress.tiers if egress is not None else (Tier(None, 0.0),),
        requests=requests,
        objects_per_gb_month=objects.per_gb_month if objects is not None else 0.0,
        volumes_per_gb_month=volumes.per_gb_month if volumes is not None else 0.0,
        missing=tuple(name for name, entry in wanted if entry is None),
    )


P = TypeVar("P", bound=Price)


def place_in(entries: Sequence[P], node: InstancePrice) -> P | None:
    """The price of the node's own provider and region."""
    found = [entry for entry in entries if (entry.provider, entry.region) == (node.provider, node.region)]
    return found[0] if found else None
