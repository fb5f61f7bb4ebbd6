"""Tokens: kept as digests, found in no other way than by their secret, and useless once revoked or expired."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from stager.adapters.tokens import PREFIX, TokenStore
from stager.cli.main import stager
from stager.model.errors import InvalidInput, Refused
from stager.model.tenants import Scope


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens.sqlite")


def test_a_token_is_found_by_its_secret_and_by_nothing_else(store: TokenStore) -> None:
    token, secret = store.create("alice", Scope.SUBMIT, "laptop", now=100.0)
    found = store.find(secret, 101.0)
    assert found is not None and (found.id, found.tenant, found.scope, found.name) == (token.id, "alice", Scope.SUBMIT, "laptop")
    for wrong in (secret[:-1], secret + "a", secret.swapcase(), token.id, "", PREFIX, "\udc80"):
        assert store.find(wrong, 101.0) is None, wrong


def test_the_secret_is_in_no_file_and_the_file_is_its_owners(store: TokenStore, tmp_path: Path) -> None:
    _, secret = store.create("alice", Scope.READ, "", now=1.0)
    assert len(secret) > 43
    for path in tmp_path.iterdir():
        assert secret.removeprefix(PREFIX).encode() not in path.read_bytes(), path
        assert path.stat().st_mode & 0o077 == 0, path


def test_expired_and_revoked_tokens_are_useless(store: TokenStore) -> None:
    token, secret = store.create("alice", Scope.READ, "", now=0.0, expires_at=50.0)
    assert store.find(secret, 49.9) and store.find(secret, 50.0) is None
    other, lasting = store.create("bob", Scope.ADMIN, "", now=0.0)
    assert store.revoke(other.id, 10.0) and store.find(lasting, 11.0) is None
    assert store.revoke(other.id, 12.0), "revoking again changes nothing"
    assert [entry.revoked_at for entry in store.all() if entry.id == other.id] == [10.0]
    assert not store.revoke("nobody", 10.0)


def test_what_one_process_revokes_another_refuses_at_once(store: TokenStore, tmp_path: Path) -> None:
    token, secret = store.create("alice", Scope.READ, "", now=0.0)
    beside = TokenStore(tmp_path / "tokens.sqlite")
    assert store.find(secret, 1.0) is not None
    beside.revoke(token.id, 2.0)
    assert store.find(secret, 3.0) is None


def test_the_last_use_is_written_now_and_then(store: TokenStore) -> None:
    _, secret = store.create("alice", Scope.READ, "", now=0.0)
    assert store.all()[0].used_at is None
    for now, kept in ((10.0, 10.0), (30.0, 10.0), (70.0, 70.0)):
        store.find(secret, now)
        assert store.all()[0].used_at == kept


def test_a_newer_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tokens.sqlite"
    TokenStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=9")
    with pytest.raises(Refused, match="format 9"):
        TokenStore(path)


def test_scopes_include_those_below() -> None:
    order = (Scope.READ, Scope.SUBMIT, Scope.ADMIN)
    for high, one in enumerate(order):
        for low, other in enumerate(order):
            assert one.includes(other) == (high >= low)


def call(state: Path, *words: str) -> str:
    done = CliRunner().invoke(stager, ["token", *words, "--state-dir", str(state)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "tenants.toml").touch(mode=0o600)
    (state / "tenants.toml").write_text("[tenants.alice]\n")
    secret = call(state, "create", "--tenant", "alice", "--scope", "submit", "--expires", "90d", "--name", "laptop").strip()
    listed = call(state, "list")
    assert "alice" in listed and "submit" in listed and "laptop" in listed and secret not in listed
    store = TokenStore(state / "tokens.sqlite")
    (token,) = store.all()
    assert token.expires_at is not None and token.expires_at - token.created_at == 90 * 86_400
    call(state, "revoke", token.id)
    assert "revoked" in call(state, "list")
    with pytest.raises(InvalidInput, match="no token"):
        call(state, "revoke", "ffffffff")


def test_a_token_is_made_for_a_tenant_that_is_named_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"names no tenant 'alice'; write into it: \[tenants.alice\]"):
        call(tmp_path / "state", "create", "--tenant", "alice")
