"""Invites and the registry: once, in time, for one key; and an entry is replaced by who knew it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stager.adapters.host_join import Invitation
from stager.adapters.invites import Invites
from stager.adapters.registry_file import FileRegistry, Registered
from stager.model.errors import Denied, InvalidInput
from stager.wire.cluster import JoinedNode, fit
from stager.wire.node import ForgottenNode

AT = JoinedNode(address="10.0.0.1:1", store_id="s", incarnation="i", capacity_bytes=1, version="0.1.0")


def test_an_invite_is_used_once_and_again_by_the_same_key_only(tmp_path: Path) -> None:
    invites = Invites(tmp_path / "invites")
    secret = invites.make("node", 100.0, 60.0)
    invites.use(secret, "node/a", "key1", 159.0)
    invites.use(secret, "node/a", "key1", 159.5)
    for role, key in (("node/a", "key2"), ("node/b", "key1")):
        with pytest.raises(Denied, match="used already"):
            invites.use(secret, role, key, 159.0)
    with pytest.raises(Denied, match="has expired"):
        invites.use(secret, "node/a", "key1", 160.0)


@pytest.mark.parametrize(("role", "secret"), [("scheduler", ""), ("pool/p", ""), ("node/a", "x" * 43), ("node/a", "../../x")])
def test_an_invite_of_another_role_or_of_nobody_is_refused(tmp_path: Path, role: str, secret: str) -> None:
    invites = Invites(tmp_path / "invites")
    good = invites.make("node", 100.0, 60.0)
    with pytest.raises(Denied) as refused:
        invites.use(secret or good, role, "key", 101.0)
    assert refused.value.code == "invite_wrong"


def test_of_many_keys_at_once_one_gets_in(tmp_path: Path) -> None:
    invites = Invites(tmp_path / "invites")

    def used(number: int) -> bool:
        try:
            invites.use(secret, f"node/n{number}", f"key{number}", 101.0)
        except Denied:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            secret = invites.make("node", 100.0, 60.0)
            assert sum(threads.map(used, range(8))) == 1


def test_the_secret_is_written_nowhere_and_old_invites_go(tmp_path: Path) -> None:
    invites = Invites(tmp_path / "invites")
    secret = invites.make("node", 100.0, 60.0)
    invites.use(secret, "node/a", "key", 101.0)
    files = list((tmp_path / "invites").iterdir())
    assert len(files) == 2 and all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert all(secret not in path.name and secret.encode() not in path.read_bytes() for path in files)
    invites.make("node", 1000.0, 60.0)
    assert len(list((tmp_path / "invites").iterdir())) == 1


def test_an_entry_is_replaced_by_who_knew_it(tmp_path: Path) -> None:
    registry = FileRegistry(tmp_path / "nodes")
    assert registry.nodes() == {}
    entry, there = Registered("a", "key"), Registered("a", "key", AT)
    assert registry.put(entry, None) and not registry.put(Registered("a", "other"), None)
    assert registry.put(there, entry) and not registry.put(entry, entry)
    assert FileRegistry(tmp_path / "nodes").nodes() == {"a": there}
    registry.remove("a")
    assert registry.nodes() == {} and not registry.put(there, there)


def test_a_node_that_was_removed_stays_so_under_its_key_until_it_joins_again_with_that(tmp_path: Path) -> None:
    registry = FileRegistry(tmp_path / "nodes")
    gone = ForgottenNode(node_id="a", key_sha256="key")
    assert registry.forgotten() == []
    registry.remove("a")
    assert registry.forgotten() == [], "it was never there"
    for _ in range(2):
        registry.put(Registered("a", "key"), None)
        assert registry.forgotten() == []
        registry.remove("a")
        assert FileRegistry(tmp_path / "nodes").forgotten() == [gone]
    # Another host joins under its name.
    registry.put(Registered("a", "other"), None)
    assert registry.forgotten() == [gone] and set(registry.nodes()) == {"a"}


def test_an_invite_is_read_whole_or_refused_without_its_secret() -> None:
    url = f"https://10.0.0.5:7435/#{'a' * 64}.{'s' * 43}"
    assert Invitation.of(url) == Invitation("10.0.0.5:7435", "a" * 64, "s" * 43)
    assert Invitation.of(url.replace("10.0.0.5", "[fd00::5]")).address == "[fd00::5]:7435"
    for bad in ("", url.replace("https", "http"), url.replace("#", "?"), url[:-40], url.replace("a" * 64, "a" * 63)):
        with pytest.raises(InvalidInput, match="this is no invite") as refused:
            Invitation.of(bad)
        assert "sss" not in str(refused.value)


def test_versions_fit_up_to_their_second_number() -> None:
    assert fit("0.1.0", "0.1.7") and fit("1.2", "1.2.0.dev1")
    assert not fit("0.1.0", "0.2.0") and not fit("", "0.1.0") and not fit("1.1.0", "0.1.0")
