"""A service of stager as a connection of Airflow: its address, its token, its clients.

May know: Airflow's SDK, stager's client. One rule: the token leaves this module inside a client only; no log, link or error holds it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseHook

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from stager.client import AsyncRestClient, RestClient

PORT = 7433
TEST_TIMEOUT_S = 10.0
NO_RUN = "airflow-asks-what-its-token-may"


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """`dashboard`: where browsers find the service."""

    server: str
    dashboard: str
    token: str = field(repr=False)

    def run_page(self, run: str) -> str:
        return f"{self.dashboard}/#/runs/{run}"

    def job_page(self, run: str, job: str) -> str:
        return f"{self.run_page(run)}/jobs/{quote(job, safe='')}"


def address_of(connection: Connection) -> ServiceAddress:
    """Raises ValueError that names the field."""
    if not connection.password:
        raise ValueError(f"connection {connection.conn_id!r} has no token; make one: stager token create --tenant NAME --scope submit")
    server = server_of(connection)
    extra = connection.extra_dejson
    return ServiceAddress(server, str(extra.get("dashboard_url") or server).rstrip("/"), connection.password)


def server_of(connection: Connection) -> str:
    """A name alone means TLS, unless it is this machine's: a token is not sent in clear over a network because nobody said otherwise."""
    host = connection.host or "127.0.0.1"
    if "://" not in host:
        protocol = connection.schema or ("http" if is_loopback(host) else "https")
        host = f"{protocol}://{f'[{host}]' if ':' in host else host}"
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"connection {connection.conn_id!r}: {host!r} is no address of a service; write a host name, or http(s)://HOST:PORT"
        )
    if parts.username or parts.password:
        raise ValueError(f"connection {connection.conn_id!r}: its host holds a user or a password; the token goes into the password field")
    port = parts.port or connection.port or (PORT if parts.scheme == "http" else None)
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class StagerHook(BaseHook):
    """`with StagerHook().get_conn() as client: client.runs()`; in triggers `async with await StagerHook().get_async_conn() as client`."""

    conn_name_attr = "stager_conn_id"
    default_conn_name = "stager_default"
    conn_type = "stager"
    hook_name = "Stager"

    def __init__(self, stager_conn_id: str = default_conn_name, *, timeout_s: float = 120.0, **more: Any) -> None:
        super().__init__(**more)
        self.stager_conn_id, self.timeout_s = stager_conn_id, timeout_s

    def address(self) -> ServiceAddress:
        return address_of(self.get_connection(self.stager_conn_id))

    async def async_address(self) -> ServiceAddress:
        return address_of(await self.aget_connection(self.stager_conn_id))

    def get_conn(self) -> RestClient:
        from stager.client import RestClient

        address = self.address()
        return RestClient(address.server, address.token, timeout_s=self.timeout_s)

    async def get_async_conn(self) -> AsyncRestClient:
        from stager.client import AsyncRestClient

        address = await self.async_address()
        return AsyncRestClient(address.server, address.token, timeout_s=self.timeout_s)

    def test_connection(self) -> tuple[bool, str]:
        """For the Test button: says which of address, token and scope is wrong. Asks once, so that a dead address is told at once."""
        import httpx

        from stager.client import RestClient, calls

        try:
            address = self.address()
            with RestClient(address.server, address.token, timeout_s=TEST_TIMEOUT_S) as client:
                listed = client.http.get("api/v1/runs", params={"limit": 1})
                if listed.is_error:
                    return False, calls.error_from_answer(listed.status_code, listed.content).message
                # Needs what a submit needs, and there is no such run, so that nothing happens.
                asked = client.http.post(f"api/v1/runs/{NO_RUN}/drain")
                if asked.status_code != 404:
                    return False, calls.error_from_answer(asked.status_code, asked.content).message
        except httpx.HTTPError as problem:
            return False, calls.unreachable(address.server, problem).message
        except ValueError as problem:
            return False, str(problem)
        return True, f"stager answers at {address.server}, and the token may submit"
