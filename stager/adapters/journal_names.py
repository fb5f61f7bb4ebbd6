"""The names of before in journals of formats 1 to 3, and those of today.

May know: batches as plain values. One rule: names alone change, so that a replay of an upgraded batch makes what the batch made before.
"""

from __future__ import annotations

import sqlite3
import zlib
from typing import Any

import msgspec

from stager.planning.old_names import plan_with_present_names

COMMANDS = {"Hasten": "Reprioritize", "FetchInstead": "FallBackToFetch", "Gather": "AssembleStripes"}
PURPOSES = {"spare": "extra_copy"}
# Events that bring a plan.
WITH_PLANS = ("RunSubmitted", "RunResumed")


def give_present_names(db: sqlite3.Connection) -> None:
    """Every batch in the present words. A damaged one stays as it is: whoever reads it is told. The snapshot goes: its shape is another."""
    db.execute("DELETE FROM snapshot")
    for seq, checksum, packed, stored in db.execute("SELECT seq, checksum, packed, body FROM batches ORDER BY seq").fetchall():
        if zlib.crc32(stored) != checksum:
            continue
        body = batch_with_present_names(zlib.decompress(stored) if packed else stored)
        again = zlib.compress(body, 1) if packed else body
        db.execute("UPDATE batches SET checksum = ?, body = ? WHERE seq = ?", (zlib.crc32(again), again, seq))


def batch_with_present_names(body: bytes) -> bytes:
    events, commands = msgspec.msgpack.decode(body)
    batch = ([event_with_present_names(*each) for each in events], [command_with_present_names(*each) for each in commands])
    return msgspec.msgpack.encode(batch)


def event_with_present_names(name: str, event: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if name in WITH_PLANS and event.get("plan") is not None:
        event = event | {"plan": plan_with_present_names(event["plan"])}
    return name, renamed(event, "can_gather", "can_assemble")


def command_with_present_names(name: str, command: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if "purpose" in command:
        command = command | {"purpose": PURPOSES.get(command["purpose"], command["purpose"])}
    if command.get("stripe") is not None:
        command = command | {"stripe": renamed(command["stripe"], "gather", "assembly")}
    return COMMANDS.get(name, name), command


def renamed(fields: dict[str, Any], past: str, present: str) -> dict[str, Any]:
    """Its place among the fields is kept."""
    return {present if name == past else name: value for name, value in fields.items()}
