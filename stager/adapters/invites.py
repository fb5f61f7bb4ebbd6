"""Invitations to a cluster: each is a secret that is used once, in time.

May know: files. One rule: the secret itself is written nowhere; a file is named by its hash, and the first to write the file of its use has
used it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from stager.adapters.whole_file import write_private
from stager.model.errors import Denied

SECRET_BYTES = 32


class Invite(msgspec.Struct, frozen=True):
    role: str
    expires_at: float


class Use(msgspec.Struct, frozen=True):
    """`key`: the digest of the public key that it was used for."""

    key: str
    role: str


class Invites:
    """In a directory of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, role: str, now: float, ttl_s: float) -> str:
        """The secret, which nothing here can tell again."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.forget_old(now)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        write_private(self._file(secret), msgspec.json.encode(Invite(role, now + ttl_s)))
        return secret

    def check(self, secret: str, role: str, key: str, now: float) -> None:
        """Raises Denied for one that was never made, has expired, is for something else, or was used for another key."""
        try:
            invite = msgspec.json.decode(self._file(secret).read_bytes(), type=Invite)
        except (OSError, msgspec.DecodeError):
            raise Denied("this invite is none of this cluster's; ask for another: `stager cluster invite`", code="invite_wrong") from None
        if invite.expires_at <= now:
            raise Denied("this invite has expired; ask for another: `stager cluster invite`", code="invite_expired")
        if role.partition("/")[0] != invite.role:
            raise Denied(f"this invite is for a {invite.role}, and not for {role}", code="invite_wrong")
        use = self._use(secret)
        if use is not None and use != Use(key, role):
            raise Denied("this invite was used already; ask for another: `stager cluster invite`", code="invite_used")

    def use(self, secret: str, role: str, key: str, now: float) -> None:
        """Once; and again by the very same key, whose answer may have been lost. Raises Denied as `check`."""
        self.check(secret, role, key, now)
        whole = self.root / f".{secrets.token_hex(8)}"
        write_private(whole, msgspec.json.encode(Use(key, role)))
        try:
            # Whole or not at all, and of two at once one.
            os.link(whole, self._file(secret).with_suffix(".used"))
        except FileExistsError:
            self.check(secret, role, key, now)
        finally:
            whole.unlink(missing_ok=True)

    def forget_old(self, now: float) -> None:
        for path in self.root.glob("*.json"):
            try:
                old = msgspec.json.decode(path.read_bytes(), type=Invite).expires_at <= now
            except (OSError, msgspec.DecodeError):
                continue
            if old:
                path.with_suffix(".used").unlink(missing_ok=True)
                path.unlink(missing_ok=True)

    def _use(self, secret: str) -> Use | None:
        try:
            return msgspec.json.decode(self._file(secret).with_suffix(".used").read_bytes(), type=Use)
        except FileNotFoundError:
            return None

    def _file(self, secret: str) -> Path:
        return self.root / f"{hashlib.sha256(secret.encode()).hexdigest()}.json"
