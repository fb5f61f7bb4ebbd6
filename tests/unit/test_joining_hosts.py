"""Which names hosts may join under."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stager import __version__
from stager.adapters.authority import Authority, kept_key, request_by
from stager.adapters.invites import Invites
from stager.adapters.registry_file import FileRegistry
from stager.model.errors import Refused
from stager.service.joining import Joining
from stager.wire.cluster import JoinRequest


def test_no_host_joins_as_a_node_that_was_named_by_hand_and_its_invite_stays_good(tmp_path: Path) -> None:
    """The scheduler would speak to it in place of the other one, and count all that this holds as lost."""
    authority = Authority(tmp_path / "cluster")
    authority.make("c1")
    invites, registry = Invites(tmp_path / "invites"), FileRegistry(tmp_path / "nodes")
    secret, csr = invites.make("node", time.time(), 60.0), request_by(kept_key(tmp_path / "key.pem"))

    def asks(node_id: str, named: list[str]) -> str:
        joining = Joining(authority, invites, registry, 1, "", named)
        return joining.join(JoinRequest(secret=secret, role=f"node/{node_id}", csr=csr, version=__version__)).certificate

    with pytest.raises(Refused, match="is named in STAGER_NODES"):
        asks("io1", ["io1", "io2"])
    assert registry.nodes() == {}
    assert "CERTIFICATE" in asks("io3", ["io1", "io2"])
    # Whose invite was used is let in again, also where somebody has named it since.
    assert "CERTIFICATE" in asks("io3", ["io3"])
