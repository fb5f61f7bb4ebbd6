"""`stager pool`."""

from __future__ import annotations

from pathlib import Path

import click

LISTEN = "127.0.0.1:8786"


@click.command(
    epilog="""\b
Example:
  stager pool
  stager pool --listen 10.0.0.1:8786 --tls-dir pool-tls"""
)
@click.option("--listen", default=LISTEN, show_default=True, metavar="IP:PORT", help="where the scheduler and the workers reach it")
@click.option(
    "--tls-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="its certificate: `stager cluster certify pool/NAME`"
)
def command(listen: str, tls_dir: Path | None) -> None:
    """Run the Dask scheduler of your pool of hosts in the foreground. It holds nothing that is needed: it may be ended and started again
    while jobs run. Whoever reaches it runs programs as you, so beyond loopback it takes TLS alone.
    """
    from stager.adapters.dask_pool import need_distributed
    from stager.adapters.host_process import serve_pool
    from stager.service.settings import environment, rest_settings

    need_distributed()
    address = rest_settings(listen, trust_network=True)
    serve_pool(address.host, address.port, tls_dir.absolute() if tls_dir is not None else None, environment())
