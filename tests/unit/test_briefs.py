"""Briefs are handed out by a socket that lies as deep as the state directory."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from stager.adapters.briefs import Briefs, brief_from
from stager.model.errors import Transient


def test_a_socket_deep_in_the_state_directory_is_reached_by_its_owner(tmp_path: Path) -> None:
    """The kernel takes no more than 107 bytes of a socket's path."""
    place = tmp_path / ("deep" * 30)
    place.mkdir()

    async def asked() -> int:
        briefs = Briefs(place / "briefs.sock")
        await briefs.open()
        try:
            with pytest.raises(Transient, match="does not start attempt a.1 now"):
                await brief_from(str(briefs.path), "a.1")
            return stat.S_IMODE(briefs.path.stat().st_mode)
        finally:
            await briefs.close()

    assert asyncio.run(asked()) == 0o600
