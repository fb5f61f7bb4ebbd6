"""Keys to objects that are taken back: those of tokens that are good no more, and none that was issued meanwhile."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from stager.adapters.storage_keys import KeyIssuer, tokens_beside
from stager.adapters.tokens import Token
from stager.service.rest.storage import maintain_keys


class Tokens:
    """None is good. When they are asked for, `then` happens as soon as the loop turns."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then

    def all(self) -> list[Token]:
        asyncio.get_running_loop().call_soon(self.then)
        return []


def test_a_key_that_is_issued_while_others_are_looked_after_stays(tmp_path: Path) -> None:
    """Its tenant came back, or its token was created, after it was asked who is good."""
    issuer = KeyIssuer(tmp_path / "storage-key.json")
    held = tokens_beside(issuer.path)
    issuer.issue("alice", "gone", may_write=True, now=time.time())
    issued = threading.Event()

    def issue() -> None:
        if not issued.is_set():
            issuer.issue("bob", "fresh", may_write=True, now=time.time())
            issued.set()

    async def play() -> None:
        # Threads are slow to begin on a busy machine.
        with ThreadPoolExecutor(1) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            threads.submit(issued.wait, 60)
            tenancy = SimpleNamespace(now=dict)
            upkeep = asyncio.create_task(maintain_keys(issuer, tenancy, Tokens(issue)))  # type: ignore[arg-type]
            while (held / "gone").exists() or not issued.is_set():
                await asyncio.sleep(0.01)
            upkeep.cancel()

    asyncio.run(play())
    assert [path.name for path in held.iterdir()] == ["fresh"]


def test_of_what_is_issued_while_it_is_asked_who_is_good_nothing_is_taken_back(tmp_path: Path) -> None:
    issuer = KeyIssuer(tmp_path / "storage-key.json")
    issuer.issue("alice", "gone", may_write=True, now=time.time())

    def good() -> set[str]:
        issuer.issue("bob", "fresh", may_write=True, now=time.time())
        return set()

    issuer.sweep(good, time.time())
    assert [path.name for path in tokens_beside(issuer.path).iterdir()] == ["fresh"]


def test_a_file_whose_keys_have_all_ended_is_forgotten(tmp_path: Path) -> None:
    issuer = KeyIssuer(tmp_path / "storage-key.json")
    for token in ("old", "new"):
        issuer.issue("alice", token, may_write=True, now=time.time())
    issuer.sweep(lambda: {"old", "new"}, time.time())
    assert len(list(tokens_beside(issuer.path).iterdir())) == 2
    issuer.sweep(lambda: {"old", "new"}, time.time() + 3700)
    assert not list(tokens_beside(issuer.path).iterdir())


def test_keys_that_are_issued_or_shown_in_the_documents_are_long_enough_for_every_client(tmp_path: Path) -> None:
    """mc takes ids of 3 characters and secrets of 8 or more."""
    key = KeyIssuer(tmp_path / "storage-key.json").issue("a", "0123abcd", may_write=True, now=time.time())
    assert len(key.access_key_id) >= 3 and len(key.secret_access_key) >= 8
    text = (Path(__file__).parents[2] / "docs/operating/s3.md").read_text()
    shown = re.findall(r'"access_key_id": "([^"]+)"|AWS_ACCESS_KEY_ID=(\S+)', text)
    assert len(shown) >= 2 and all(len(one or other) >= 3 for one, other in shown)
