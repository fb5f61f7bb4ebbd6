"""The tokens of the REST API: made, found and revoked in a small SQLite file of the state directory.

May know: the model, sqlite3. One rule: the secret is told once, when it is made; kept is its SHA-256. It is 256 random bits, so a quick
hash is enough: there is nothing to guess, and each request pays for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stager.model.errors import Refused
from stager.model.tenants import Scope

FORMAT = 1
PREFIX = "stg_"
SECRET_BYTES = 32
# What an index may hold of a digest: it finds the row, and the rest is compared in constant time.
KEY_BYTES = 8
USED_EVERY_S = 60.0
BUSY_S = 5.0
SCHEMA = """
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, key BLOB NOT NULL, digest BLOB NOT NULL, tenant TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL, used_at REAL, revoked_at REAL
) WITHOUT ROWID;
CREATE INDEX tokens_by_key ON tokens (key);
"""
COLUMNS = "id, tenant, scope, name, created_at, expires_at, used_at, revoked_at"


@dataclass(frozen=True, slots=True)
class Token:
    """Without its secret."""

    id: str
    tenant: str
    scope: Scope
    name: str
    created_at: float
    expires_at: float | None = None
    used_at: float | None = None
    revoked_at: float | None = None

    def is_good(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class TokenStore:
    """Opened by the service and by `stager token` beside it; what one writes the other sees at once."""

    def __init__(self, path: Path, busy_s: float = BUSY_S) -> None:
        """`busy_s`: how long a write waits for another program's. Raises Refused for a file of a newer version."""
        path.touch(mode=0o600, exist_ok=True)
        path.chmod(0o600)
        self.db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        try:
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("BEGIN IMMEDIATE")
            found = self.db.execute("PRAGMA user_version").fetchone()[0]
            if found > FORMAT:
                text = f"the tokens {path} have format {found}, and this version of stager knows up to {FORMAT}"
                raise Refused(f"{text}; use the newer version that wrote them", code="tokens_newer", subject=str(path))
            if found < FORMAT:
                for statement in filter(str.strip, SCHEMA.split(";")):
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA user_version={FORMAT}")
            self.db.execute("COMMIT")
        except BaseException:
            self.db.close()
            raise

    def create(self, tenant: str, scope: Scope, name: str, now: float, expires_at: float | None = None) -> tuple[Token, str]:
        """The token and its secret, which nobody can tell again."""
        secret = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).rstrip(b"=").decode()
        token = Token(secrets.token_hex(4), tenant, scope, name, now, expires_at)
        digest = digest_of(secret)
        row = (token.id, digest[:KEY_BYTES], digest, tenant, scope.value, name, now, expires_at)
        self.db.execute(
            "INSERT INTO tokens (id, key, digest, tenant, scope, name, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
        )
        return token, secret

    def find(self, secret: str, now: float) -> Token | None:
        """Of a token that may be used now."""
        digest = digest_of(secret)
        for row in self.db.execute(f"SELECT digest, {COLUMNS} FROM tokens WHERE key = ?", (digest[:KEY_BYTES],)).fetchall():
            if hmac.compare_digest(row[0], digest) and (token := token_of(row[1:])).is_good(now):
                self._used(token, now)
                return token
        return None

    def is_good(self, token_id: str, now: float) -> bool:
        """Of one that was found before."""
        row = self.db.execute(f"SELECT {COLUMNS} FROM tokens WHERE id = ?", (token_id,)).fetchone()
        return row is not None and token_of(row).is_good(now)

    def _used(self, token: Token, now: float) -> None:
        """Now and then: not each request is worth a write."""
        if token.used_at is None or now - token.used_at >= USED_EVERY_S:
            # Another program may be writing: it will be used again.
            with suppress(sqlite3.OperationalError):
                self.db.execute("UPDATE tokens SET used_at = ? WHERE id = ?", (now, token.id))

    def all(self) -> list[Token]:
        return [token_of(row) for row in self.db.execute(f"SELECT {COLUMNS} FROM tokens ORDER BY created_at, id")]

    def revoke(self, token_id: str, now: float) -> bool:
        """False: there is none of this id. Revoking again changes nothing."""
        self.db.execute("UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, token_id))
        return self.db.execute("SELECT 1 FROM tokens WHERE id = ?", (token_id,)).fetchone() is not None

    def close(self) -> None:
        self.db.close()


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def token_of(row: tuple[Any, ...]) -> Token:
    token_id, tenant, scope, *rest = row
    return Token(token_id, tenant, Scope(scope), *rest)
