"""The compute hosts that a scheduler heard of last, in a file of its state directory, so that plans are made for them where none lives.

May know: the model. One rule: a file that is not there, or not sound, names no hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stager.model.topology import Host
from stager.worker.place import publish_json, read_json

BOOK = "known.json"


def book_of(directory: Path, tenant: str) -> Path:
    """Of the hosts on which jobs of that tenant run; empty: of those who have no pool of their own."""
    return directory / (f"known.{tenant}.json" if tenant else BOOK)


def write_hosts(book: Path, hosts: Mapping[str, Sequence[Host]]) -> None:
    """By I/O node."""
    publish_json(str(book), {"version": 1, "hosts": msgspec.to_builtins(hosts)})


def read_hosts(book: Path) -> dict[str, tuple[Host, ...]]:
    said = read_json(str(book))
    if said is None or said.get("version") != 1:
        return {}
    return msgspec.convert(said["hosts"], dict[str, tuple[Host, ...]])
