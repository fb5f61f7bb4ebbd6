"""How hosts join the cluster of this scheduler: invites become certificates, and nodes say where they are.

May know: the authority, the invites, the registry. One rule: nothing is told to whoever shows neither a good invite
nor a certificate, and a certificate speaks for its own node alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from stager import __version__
from stager.adapters.authority import OWN_POOL, Authority, check_role, digest_of_key, key_of
from stager.adapters.invites import Invites
from stager.adapters.node_place import node_place
from stager.adapters.registry_file import FileRegistry, Registered
from stager.model.errors import Denied, InvalidInput, Refused
from stager.service.settings import is_loopback
from stager.wire.cluster import ClusterAbout, JoinAnswer, JoinedNode, JoinRequest, PoolAnswer, PoolRequest, RenewRequest, fit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Joining:
    """Blocking, a few milliseconds each. `epoch`: of this scheduler. `pool_address`: of the pool that its owner's jobs run in. `named`: the
    nodes that its administrator has named, whose certificates were made by hand.
    """

    authority: Authority
    invites: Invites
    registry: FileRegistry
    epoch: int
    pool_address: str = ""
    named: Collection[str] = ()

    def ca(self) -> bytes:
        return (self.authority.root / "ca.pem").read_bytes()

    def join(self, request: JoinRequest) -> JoinAnswer:
        """The certificate for a good invite. Raises Denied for a bad one, Refused for a name that another host has."""
        key = digest_of_key(key_of(request.csr))
        self.invites.check(request.secret, request.role, key, now := time.time())
        check_role(request.role)
        node_id = request.role.partition("/")[2]
        node_place(node_id, "127.0.0.1:1", None)
        require_fit(request.version, f"stager on the host of {node_id}")
        before = self.registry.nodes().get(node_id)
        if before is not None and before.key != key:
            raise taken(node_id)
        if before is None and node_id in self.named:
            text = f"the node {node_id} is named in STAGER_NODES or [nodes] of this scheduler, and has not joined"
            raise Refused(f"{text}; join under another --node-id, or take it out there first", code="node_taken", subject=node_id)
        self.invites.use(request.secret, request.role, key, now)
        if before is None and not self.registry.put(Registered(node_id, key), None):
            raise taken(node_id)
        log.info("the host of node %s has joined by an invite", node_id)
        return JoinAnswer(certificate=self.authority.sign_request(request.csr, request.role))

    def renew(self, node_id: str, key: str, request: RenewRequest) -> JoinAnswer:
        """The same certificate, for longer. Raises Denied for a node that is not in the registry, or that shows another key."""
        self._registered(self.registry.nodes(), node_id, key)
        if digest_of_key(key_of(request.csr)) != key:
            raise Denied("a certificate is renewed for the key that it has", code="role_refused", subject=node_id)
        return JoinAnswer(certificate=self.authority.sign_request(request.csr, f"node/{node_id}"))

    def pool(self, node_id: str, key: str, request: PoolRequest) -> PoolAnswer:
        """What the worker of a host needs. Raises Denied for a node that is not in the registry, Refused where it can be in no pool."""
        self._registered(self.registry.nodes(), node_id, key)
        address = self.pool_address
        if not address:
            text = "this scheduler has no pool of hosts, so its jobs run beside it; start one with `stager pool`, name it in STAGER_POOL"
            raise Refused(f"{text} where `stager serve` starts, and say `stager host join` again", code="no_pool", subject="pool")
        if is_loopback(address.partition("://")[2].rpartition(":")[0].removeprefix("[").removesuffix("]")):
            text = f"the pool of this scheduler is at {address}, which other hosts do not reach"
            raise Refused(f"{text}; give `stager pool` an address of the network, with a certificate", code="no_pool", subject="pool")
        log.info("the host of node %s has a worker in the pool %s", node_id, address)
        return PoolAnswer(address=address, certificate=self.authority.sign_request(request.csr, OWN_POOL))

    def about(self, node_id: str, key: str) -> ClusterAbout:
        """Raises Denied for a node that is not in the registry."""
        self._registered(self.registry.nodes(), node_id, key)
        return ClusterAbout(epoch=self.epoch, version=__version__)

    def put(self, node_id: str, key: str, node: JoinedNode) -> None:
        """`node_id` and `key` are those of the certificate. Raises Denied for one that is not in the registry (any more), Refused for a
        store that is another's or another than before.
        """
        require_fit(node.version, f"stager-ionode of node {node_id}")
        node_place(node_id, node.address, None)
        entries = self.registry.nodes()
        before = self._registered(entries, node_id, key)
        for other in entries.values():
            if node.store_id and other.node_id != node_id and other.at is not None and other.at.store_id == node.store_id:
                text = f"the store of the node {node_id} is that of the node {other.node_id}: one of the two is a copy"
                raise Refused(f"{text}; give {node_id} an empty --store", code="store_taken", subject=node_id)
        if before.at is not None and node.store_id and before.at.store_id not in ("", node.store_id):
            text = f"the node {node_id} has another store than when it joined, so what it held is not there"
            raise Refused(f"{text}; join under another --node-id", code="another_store", subject=node_id)
        if not self.registry.put(Registered(node_id, key, node), before):
            raise Refused(f"the node {node_id} said something else at the same time; say it again", code="changed", subject=node_id)

    @staticmethod
    def _registered(entries: Mapping[str, Registered], node_id: str, key: str) -> Registered:
        found = entries.get(node_id)
        if found is None or found.key != key:
            text = f"the certificate of the node {node_id} is not in the registry"
            raise Denied(f"{text}; join with a new invite", code="not_registered", subject=node_id)
        return found


def taken(node_id: str) -> Refused:
    text = f"another host has joined as the node {node_id}"
    return Refused(f"{text}; join under another --node-id", code="node_taken", subject=node_id)


def require_fit(version: str, what: str) -> None:
    if not fit(version, __version__):
        text = f"{what} has the version {version}, and this scheduler {__version__}: they do not fit"
        raise InvalidInput(f"{text}; install the same version on both", code="version_differs", subject="version")
