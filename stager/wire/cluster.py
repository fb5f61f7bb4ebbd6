"""The bodies by which a host joins a cluster, and says where its I/O node is (docs/formats/cluster-api.md)."""

from __future__ import annotations

import re

import msgspec

PATH = "/api/v1/cluster"
CA_PATH, JOIN_PATH, RENEW_PATH, NODES_PATH = f"{PATH}/ca", f"{PATH}/join", f"{PATH}/renew", f"{PATH}/nodes/"
POOL_PATH = f"{PATH}/pool"
NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`csr`: PEM; only its public key counts. `role`: what the certificate is to say."""

    secret: str
    role: str
    csr: str
    version: str


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`csr`: of the same key."""

    csr: str


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`certificate`: PEM."""

    certificate: str


class PoolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`csr`: of the key that the worker of this host is to have."""

    csr: str


class PoolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`address`: of the Dask scheduler, tls://HOST:PORT. `certificate`: PEM, of a member of the pool."""

    address: str
    certificate: str


class ClusterAbout(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch`: of the scheduler, for calls of a host to the node that it starts."""

    epoch: int
    version: str


class JoinedNode(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an I/O node that has joined. `store_id`: of its store, where the node tells one."""

    address: str
    store_id: str
    incarnation: str
    capacity_bytes: int
    version: str


def fit(one: str, other: str) -> bool:
    """Whether two versions can work together: up to their second number they are the same."""
    return one.split(".")[:2] == other.split(".")[:2]
