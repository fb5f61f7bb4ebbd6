"""The contents that tenants send: taken in parts, checked, told of to nobody else, removed when nothing needs them."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from stager import rest
from stager.model.errors import InvalidInput, Refused
from stager.service.sent_contents import ASKED_S, PART_S, SentContents, SentStores

MAX = 1000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def asked(content: bytes) -> rest.Content:
    return rest.Content(sha256=digest(content), size_bytes=len(content))


@pytest.fixture
def store(tmp_path: Path) -> SentContents:
    return SentStores(tmp_path, MAX).of("alice")


def send(store: SentContents, content: bytes, offset: int = 0) -> rest.ContentReceived:
    return store.take(digest(content), len(content), offset, content[offset:])


def test_a_content_is_missing_until_all_of_it_came(store: SentContents) -> None:
    content = b"0123456789"
    assert [each.received_bytes for each in store.missing([asked(content)])] == [0]
    assert not store.take(digest(content), 10, 0, content[:4]).complete
    assert [each.received_bytes for each in store.missing([asked(content)])] == [4]
    # The answer to it was lost, and it comes again with more behind it.
    assert store.take(digest(content), 10, 0, content[:6]).received_bytes == 6
    with pytest.raises(Refused, match="6 bytes") as gap:
        store.take(digest(content), 10, 7, content[7:])
    assert gap.value.code == "content_offset"
    assert store.take(digest(content), 10, 6, content[6:]).complete
    assert store.missing([asked(content)]) == [] and store.path(digest(content)).read_bytes() == content
    assert send(store, content).complete, "again"
    assert send(store, b"").complete and store.missing([asked(b"")]) == []


def test_a_content_with_another_digest_is_dropped(store: SentContents) -> None:
    content, wrong = b"good", b"evil"
    for offset in (0, 2):
        if offset:
            store.take(digest(content), 4, 0, wrong[:2])
        with pytest.raises(InvalidInput, match="send it anew") as problem:
            store.take(digest(content), 4, offset, wrong[offset:])
        assert problem.value.code == "content_differs"
        assert [each.received_bytes for each in store.missing([asked(content)])] == [0]
    assert send(store, content).complete


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "", "a" * 63, "A" * 64, "a" * 64 + "\n", "a" * 62 + "/b"])
def test_a_digest_leads_nowhere_else(store: SentContents, name: str) -> None:
    with pytest.raises(InvalidInput, match="no SHA-256"):
        store.take(name, 1, 0, b"x")
    assert not store.root.exists()


def test_no_tenant_is_told_of_what_another_sent(tmp_path: Path) -> None:
    stores, content = SentStores(tmp_path, MAX), b"alice's own"
    assert send(stores.of("alice"), content).complete
    stores.of("alice").take(digest(b"half"), 4, 0, b"ha")
    found = stores.of("bob").missing([asked(content), asked(b"half")])
    assert [(each.sha256, each.received_bytes) for each in found] == [(digest(content), 0), (digest(b"half"), 0)]


def test_sizes_have_bounds(store: SentContents) -> None:
    with pytest.raises(Refused, match="--directory-max") as large:
        store.take("a" * 64, MAX + 1, 0, b"x")
    assert large.value.code == "directory_too_large"
    with pytest.raises(InvalidInput, match="beyond the size"):
        store.take("a" * 64, 3, 0, b"four")
    # Of one tenant, whole or not.
    for number in range(4):
        store.take(f"{number}" * 64, MAX, 0, b"x" * (MAX - 1))
    with pytest.raises(Refused, match="may be") as full:
        store.take("b" * 64, MAX, 0, b"x" * 100)
    assert full.value.code == "contents_full"


def test_what_nothing_needs_goes_and_what_was_asked_for_stays(store: SentContents, tmp_path: Path) -> None:
    old, wanted, used, half = b"old", b"wanted", b"used", b"half of it"
    for content in (old, wanted, used):
        send(store, content)
    store.take(digest(half), len(half), 0, half[:4])
    os.link(store.path(digest(used)), tmp_path / "in a run")
    later = time.time() + ASKED_S + 60
    # Its submit asks, an hour after it came.
    path = store.path(digest(wanted))
    before = path.stat().st_mtime_ns
    assert store.missing([asked(wanted)]) == []
    assert path.stat().st_mtime_ns == before, "it is the same file for runs that use it"
    os.utime(path, ns=(int(later * 1e9), before))
    assert store.sweep(later) == len(old)
    assert [each.sha256 for each in store.missing([asked(each) for each in (old, wanted, used)])] == [digest(old)]
    assert store.part(digest(half)).exists()
    store.sweep(time.time() + PART_S + 60)
    assert not store.part(digest(half)).exists()


def test_what_was_said_to_be_there_is_not_swept_at_that_moment(
    store: SentContents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, told, asking = b"x", [], list[threading.Thread]()
    send(store, content)

    def unlink(path: Path, *words: object) -> None:
        """Its submit asks when the sweep has made up its mind."""
        asking.append(threading.Thread(target=lambda: told.append(SentContents(tmp_path, "alice", MAX).missing([asked(content)]))))
        asking[0].start()
        asking[0].join(0.3)
        os.unlink(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    store.sweep(time.time() + ASKED_S + 60)
    asking[0].join()
    assert [each.sha256 for each in told[0]] == [digest(content)]
