"""A final that comes home is compared as a whole with the ledger: by the program that is here, or not at all, which is said."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

import pytest

from stager import rest
from stager.adapters.content_hash import blake3_of
from stager.cli.sent_directory import SentDirectories
from stager.model.errors import Corrupt
from stager.wire import LedgerEntry
from tests.testbed.places import ionode_binary

EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
WORKFLOW = """stager: 1
name: made
jobs:
  make:
    run: echo > out.txt
    outputs: {out.txt: here:out.txt}
"""


class Sending:
    """A service whose parts are right each, and whose file is another than its ledger says."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @property
    def contents(self) -> Sending:
        return self

    def result_part(self, run: str, lfn: str, offset: int) -> rest.ResultPart:
        sha256 = hashlib.sha256(self.content).hexdigest()
        return rest.ResultPart.model_construct(content=self.content, sha256=sha256, size_bytes=len(self.content))


@pytest.fixture
def brought(tmp_path: Path) -> SentDirectories:
    (tmp_path / "workflow.yml").write_text(WORKFLOW)
    return SentDirectories(tmp_path / "workflow.yml", {"STAGER_IONODE": str(ionode_binary())})


def home(brought: SentDirectories, content: bytes, said: list[str]) -> int:
    entry = LedgerEntry(lfn="out.txt", state="durable", blake3=EMPTY, final=True, origin="here", path="out.txt")
    return brought.bring_home(cast(Any, Sending(content)), "r", [entry], said.append)


def test_what_is_not_the_ledgers_file_does_not_come_home(brought: SentDirectories, tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="not what the ledger says"):
        home(brought, b"another\n", [])
    assert [path.name for path in tmp_path.iterdir()] == ["workflow.yml"]
    said: list[str] = []
    assert home(brought, b"", said) == 0
    assert (tmp_path / "out.txt").read_bytes() == b"" and said == [f"out.txt is at {tmp_path / 'out.txt'}"]


@pytest.mark.parametrize("program", ["/nowhere/stager-ionode", "/bin/false"])
def test_where_no_program_here_tells_it_the_command_says_so(brought: SentDirectories, tmp_path: Path, program: str) -> None:
    brought.environ = {"STAGER_IONODE": program}
    assert blake3_of(tmp_path / "workflow.yml", {"STAGER_IONODE": program}) is None
    said: list[str] = []
    assert home(brought, b"another\n", said) == 0
    assert said[-1].startswith("1 final was compared in parts with what the service sent, and not as a whole with its ledger")
