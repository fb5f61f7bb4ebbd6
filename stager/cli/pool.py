"""`stager pool`."""

from __future__ import annotations

from pathlib import Path

import click

from stager.cli.options import settings_of, state_dir_option
from stager.service.state_dir import StateDir, pool_tls_of

LISTEN = "127.0.0.1:8786"


@click.command(
    epilog="""\b
Example:
  stager pool
  stager pool --listen 10.0.0.1:8786
  stager pool --listen 10.0.0.1:8786 --tls-dir pool-tls
  stager pool --listen 10.0.0.1:8786 --tls-dir pool-tls --gateway 10.0.0.1:8787"""
)
@click.option(
    "--listen", default="", metavar="IP:PORT", help=f"where the scheduler and the workers reach it; default: as STAGER_POOL, else {LISTEN}"
)
@click.option(
    "--tls-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="its certificate; default, beyond loopback: that of `stager cluster init`",
)
@click.option(
    "--gateway", default="", metavar="IP:PORT", help="where the service reaches it, for the pool of a tenant (`pool` in tenants.toml)"
)
@state_dir_option
def command(listen: str, tls_dir: Path | None, gateway: str, state_dir: Path | None) -> None:
    """Run the Dask scheduler of your pool of hosts in the foreground. It holds nothing that is needed: it may be ended and started again
    while jobs run. Whoever reaches it runs programs as you, so beyond loopback it takes TLS alone.
    """
    from stager.adapters.dask_pool import need_distributed
    from stager.adapters.host_process import serve_pool
    from stager.service.settings import environment, is_loopback, rest_settings

    need_distributed()
    settings = settings_of(state_dir)
    address = rest_settings(listen or settings.pool.partition("://")[2] or LISTEN, trust_network=True)
    made = pool_tls_of(StateDir(settings.state_dir))
    if tls_dir is None and not is_loopback(address.host) and made.is_dir():
        tls_dir = made
    if gateway:
        rest_settings(gateway, trust_network=True)
    serve_pool(address.host, address.port, tls_dir.absolute() if tls_dir is not None else None, environment(), gateway)
