"""`stager cluster`: the authority of a cluster of I/O nodes, and the certificates that it signs."""

from __future__ import annotations

import time
from pathlib import Path

import click

from stager.adapters.authority import LEAF_DAYS, OWN_POOL, SCHEDULER, Authority, Leaf
from stager.adapters.node_place import EMBEDDED_NODE
from stager.cli.options import Duration, json_option, print_json, settings_of, state_dir_option
from stager.model.units import format_duration
from stager.service.inviting import ROLE, invite_url
from stager.service.state_dir import StateDir, pool_tls_of


@click.group(
    epilog="""\b
Example:
  stager cluster init --name survey
  stager cluster certify node/io1 --out io1-tls"""
)
def command() -> None:
    """Make the certificates by which hosts of a cluster know each other. Needs `pip install 'stager[cluster]'`."""


@command.command(
    "init",
    epilog="""\b
Example:
  stager cluster init --name survey""",
)
@click.option("--name", default="stager", show_default=True, help="the name of the cluster; it stands in every certificate")
@state_dir_option
@json_option
def init(name: str, state_dir: Path | None, as_json: bool) -> None:
    """Make the authority of a new cluster in the state directory, and the certificates of the scheduler, its I/O node and its pool."""
    place = place_of(state_dir)
    authority = Authority(place.authority)
    place.make()
    authority.make(name)
    authority.issue(f"node/{EMBEDDED_NODE}", place.node_tls)
    authority.issue(OWN_POOL, pool_tls_of(place))
    tell(authority.issue(SCHEDULER, place.tls), as_json)


@command.command(
    "certify",
    epilog="""\b
Example:
  stager cluster certify node/io1 --out io1-tls
  stager cluster certify metrics/prometheus --out prometheus-tls
  stager cluster certify scheduler --out me-tls --days 7""",
)
@click.argument("role")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="the directory for ca.pem, cert.pem and key.pem; what is there is replaced",
)
@click.option("--days", type=int, default=LEAF_DAYS, show_default=True, help="how long the certificate is good")
@state_dir_option
@json_option
def certify(role: str, out: Path, days: int, state_dir: Path | None, as_json: bool) -> None:
    """Make a key and a certificate of ROLE: scheduler, node/ID, pool/NAME or metrics/NAME. The directory is for `stager-ionode serve
    --tls-dir`, or for a program that calls nodes. metrics/NAME may read their metrics, and nothing else.

    Take the directory to its host by a way that nobody else reads, such as scp. A node takes up what is replaced there by itself.
    """
    tell(Authority(place_of(state_dir).authority).issue(role, out, days), as_json)


@command.command(
    "invite",
    epilog="""\b
Example:
  stager cluster invite
  stager cluster invite --ttl '2 h' --json""",
)
@click.option("--role", type=click.Choice([ROLE]), default=ROLE, show_default=True, help="what the host that joins may be")
@click.option("--ttl", type=Duration(), default="15 min", show_default=True, help="how long the invite is good")
@click.option(
    "--address", default="", metavar="HOST:PORT", help="where that host reaches `stager serve --cluster-listen`; default: where it listens"
)
@state_dir_option
@json_option
def invite(role: str, ttl: float, address: str, state_dir: Path | None, as_json: bool) -> None:
    """Print a URL that lets one host join, once. Whoever has it can: send it by a way that nobody else reads."""
    made = invite_url(place_of(state_dir), time.time(), ttl, address, role)
    if as_json:
        print_json({"url": made.url, "role": role, "expires_at": made.expires_at, "ca_sha256": made.ca_sha256})
        return
    click.echo(made.url)
    click.echo(f"good for {format_duration(ttl)}, for one host; there: stager host join URL", err=True)


def place_of(state_dir: Path | None) -> StateDir:
    return StateDir(settings_of(state_dir).state_dir)


def tell(leaf: Leaf, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "cluster": leaf.cluster,
                "role": leaf.role,
                "dir": str(leaf.dir),
                "expires_at": leaf.expires_at.timestamp(),
                "ca_sha256": leaf.ca_sha256,
            }
        )
        return
    click.echo(f"{leaf.dir}: the certificate of {leaf.role} in the cluster {leaf.cluster}, good until {leaf.expires_at:%Y-%m-%d}")
    click.echo(f"the cluster's authority has the SHA-256 fingerprint {leaf.ca_sha256}")
