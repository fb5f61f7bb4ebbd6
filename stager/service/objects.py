"""The objects that one I/O node keeps for tenants: where they are, and who issues keys to them. One rule: nothing of them passes here."""

from __future__ import annotations

from dataclasses import dataclass

from stager.adapters.node_process import NodeProcess
from stager.adapters.storage_keys import KeyIssuer


@dataclass(frozen=True, slots=True)
class Objects:
    """`node`: the one that keeps them all. `url`: as tenants reach the endpoint; empty: at the node's own address."""

    issuer: KeyIssuer
    node: NodeProcess
    url: str = ""

    def endpoint(self) -> str:
        """Empty: the node is not up yet."""
        address = self.node.s3_address
        return (self.url or f"http://{address}") if address else ""
