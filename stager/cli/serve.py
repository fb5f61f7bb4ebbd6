"""`stager serve`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from stager.cli.options import Size, capacity_option, cores_option, settings_of, state_dir_option
from stager.cli.token import tenants_option
from stager.model.errors import Refused
from stager.service.settings import DIRECTORY_BYTES_MAX, LISTEN, STORAGE_LISTEN, cluster_listen_of, rest_settings, storage_settings
from stager.service.state_dir import LockHeld


@click.command(
    epilog="""\b
Example:
  stager serve
  stager serve --state-dir /var/lib/stager --capacity '200 GB' --allow-host stager.example.org
  curl -H "Authorization: Bearer $STAGER_TOKEN" http://127.0.0.1:7433/api/v1/runs"""
)
@click.option("--listen", default=LISTEN, show_default=True, metavar="HOST:PORT", help="where the REST API is; port 0: any that is free")
@click.option("--trust-network", is_flag=True, help="listen on other addresses than loopback, without TLS")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", help="a name that a proxy calls it by; may be repeated")
@click.option("--metrics-open", is_flag=True, help="answer /metrics without a token")
@click.option("--storage", type=Size(), help="space for tenants' objects, on top of --capacity; 0: none; default: a tenth of --capacity")
@click.option(
    "--storage-listen",
    default=STORAGE_LISTEN,
    show_default=True,
    metavar="IP:PORT",
    help="where the I/O node serves them over S3; any free port where that one is taken",
)
@click.option("--storage-url", default="", metavar="URL", help="the address that clients are given instead, as that of a proxy")
@click.option(
    "--cluster-listen", default="", metavar="IP:PORT", help="where hosts that join the cluster call, by TLS; needs `stager cluster init`"
)
@click.option(
    "--directory-max",
    type=Size(),
    default=DIRECTORY_BYTES_MAX,
    help="how much the files beside a workflow may have that a submit brings along; default: 256 MiB",
)
@tenants_option
@capacity_option
@cores_option
@state_dir_option
def command(
    listen: str,
    trust_network: bool,
    allow_hosts: tuple[str, ...],
    metrics_open: bool,
    storage: int | None,
    storage_listen: str,
    storage_url: str,
    cluster_listen: str,
    directory_max: int,
    tenants: Path | None,
    capacity: int | None,
    cores: int | None,
    state_dir: Path | None,
) -> int:
    """Run the scheduler in the foreground, with the REST API for those that tenants.toml names (docs/operating/serve.md). It takes tokens
    of `stager token create`, also on loopback. SIGTERM and Ctrl-C drain it, a second one ends it at once; its runs go on when it is
    started again.
    """
    # The web framework is heavy, and help should be quick.
    from stager.service.process import hold_as_service

    settings = replace(settings_of(state_dir, capacity, cores), tenants_file=tenants.absolute() if tenants is not None else None)
    objects = storage_settings(settings.capacity_bytes, storage, storage_listen, storage_url, trust_network=trust_network)
    joining = cluster_listen_of(cluster_listen)
    settings = replace(settings, storage=objects, cluster_listen=joining, directory_bytes_max=directory_max)
    rest = rest_settings(listen, trust_network=trust_network, allow_hosts=allow_hosts, metrics_open=metrics_open)
    try:
        return hold_as_service(settings, rest)
    except LockHeld as problem:
        text = f"{problem.message}; end it with `stager shutdown`, or serve another --state-dir"
        raise Refused(text, code=problem.code, subject=problem.subject) from None
