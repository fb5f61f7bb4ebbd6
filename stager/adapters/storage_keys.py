"""Keys of the I/O node's S3 endpoint, issued to tenants: which bucket is whose, what a key may do and until when stands in its id.

May know: the issuer's secret, a file that the node reads too (ionode/s3/src/issued.rs). One rule: the node is told of no key; a secret
follows from its id, so that a key holds over every restart, and no longer than its id says, or than there is a file of its token in the
directory beside the secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stager.adapters.whole_file import write_private
from stager.model.errors import Refused

SECRET_BYTES = 32
PURPOSE = "stager-s3-key-1"
LIFETIME_S = 3600


@dataclass(frozen=True, slots=True)
class StorageKey:
    access_key_id: str
    secret_access_key: str = field(repr=False)
    expires_at: int


class KeyIssuer:
    def __init__(self, path: Path) -> None:
        """The file is made where there is none; who removes it while nothing runs ends all keys. Raises Refused where it cannot be used."""
        with suppress(FileExistsError):
            made = {"issuer_secret": base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}
            write_private(path, json.dumps(made).encode(), over=False)
        try:
            found = path.stat()
            secret = json.loads(path.read_bytes())["issuer_secret"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise Refused(
                f"{path} cannot be used ({problem}); remove it, and it is made anew", code="storage_key", subject=str(path)
            ) from None
        if found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise Refused(f"{path} can be read by others; remove it, and it is made anew", code="storage_key", subject=str(path))
        self.path, self._secret = path, str(secret)

    def issue(self, tenant: str, token: str, *, may_write: bool, now: float, until: float | None = None) -> StorageKey:
        """For who came with that token, which is good `until` then."""
        expires_at = int(now) + LIFETIME_S if until is None else int(min(now + LIFETIME_S, until))
        tokens = tokens_beside(self.path)
        tokens.mkdir(mode=0o700, exist_ok=True)
        (tokens / token).touch(mode=0o600)
        key = f"{tenant}.{'w' if may_write else 'r'}.{expires_at}.{token}"
        return StorageKey(key, secret_of(self._secret, key), expires_at)

    def sweep(self, good: Callable[[], set[str]], now: float) -> None:
        """Takes back the keys of tokens that are not good any more; forgets those whose keys have all ended. It asks which tokens are
        good once it knows which have keys: a token may become good at any time, and has no keys before that.
        """
        tokens = tokens_beside(self.path)
        held = list(tokens.iterdir()) if tokens.is_dir() else []
        known = good()
        for path in held:
            with suppress(FileNotFoundError):
                if path.name not in known or now - path.stat().st_mtime > LIFETIME_S:
                    path.unlink()


def tokens_beside(issuer: Path) -> Path:
    return issuer.with_suffix(".tokens")


def take_back(issuer: Path, token: str) -> None:
    """All keys that were given for a token: they are refused from now on."""
    (tokens_beside(issuer) / token).unlink(missing_ok=True)


def secret_of(issuer_secret: str, key: str) -> str:
    code = hmac.new(issuer_secret.encode(), f"{PURPOSE}\n{key}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(code.digest()).rstrip(b"=").decode()
