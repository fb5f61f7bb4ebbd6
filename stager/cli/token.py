"""`stager token`: who may call the REST API of `stager serve`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from stager.adapters.storage_keys import take_back
from stager.adapters.tokens import Token, TokenStore
from stager.cli.options import Duration, json_option, print_json, settings_of, state_dir_option
from stager.cli.tables import print_table
from stager.model.errors import InvalidInput
from stager.model.tenants import Scope
from stager.readers.lines import nearest
from stager.readers.tenants import read_tenants
from stager.service.state_dir import StateDir

tenants_option = click.option(
    "--tenants",
    type=click.Path(dir_okay=False, path_type=Path),
    help="the file that names the tenants; default: tenants.toml in the state directory",
)


@click.group(
    epilog="""\b
Example:
  stager token create --tenant alice --scope submit --expires 90d
  stager token list
  stager token revoke 4f1c22ab"""
)
def command() -> None:
    """Make, list and revoke the tokens that `stager serve` asks for. A living service sees a change at once."""


@command.command(
    "create",
    epilog="""\b
Example:
  stager token create --tenant alice --scope submit --expires 90d > alice.token""",
)
@click.option("--tenant", required=True, help="the tenant whose runs it may see and submit; tenants.toml names all of them")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    default=Scope.READ.value,
    show_default=True,
    help="the rights of the token",
)
@click.option("--expires", "expires_s", type=Duration(), metavar="TIME", help="no longer good after this time, as in 90d; default: never")
@click.option("--name", default="", help="to know it by, in `stager token list`")
@tenants_option
@state_dir_option
@json_option
def create(
    tenant: str, scope: str, expires_s: float | None, name: str, tenants: Path | None, state_dir: Path | None, as_json: bool
) -> None:
    """Print a new token of a tenant. It is shown this once: keep it in a file that only its owner can read."""
    place = place_of(state_dir)
    known = read_tenants(tenants or place.tenants).by_name
    if tenant not in known:
        there = f"it has {', '.join(sorted(known))}" if known else f"write into it: [tenants.{tenant}]"
        text = f"{tenants or place.tenants} names no tenant {tenant!r}{nearest(tenant, known)}; {there}"
        raise InvalidInput(text, code="tenant_unknown", subject=tenant)
    now = time.time()
    with opened(place) as store:
        token, secret = store.create(tenant, Scope(scope), name, now, now + expires_s if expires_s is not None else None)
    if as_json:
        print_json(token_to_dict(token) | {"token": secret})
    else:
        click.echo(f"token {token.id} of {tenant}, scope {scope}; it is shown this once", err=True)
        click.echo(secret)


@command.command(
    "list",
    epilog="""\b
Example:
  stager token list
  stager token list --json | jq -r '.[] | select(.revoked_at == null).id'""",
)
@state_dir_option
@json_option
def list_command(state_dir: Path | None, as_json: bool) -> None:
    """All tokens by their ids; what is kept of a secret cannot be turned back into it."""
    with opened(place_of(state_dir)) as store:
        tokens = store.all()
    if as_json:
        print_json([token_to_dict(token) for token in tokens])
        return
    columns = [(name, "left") for name in ("id", "tenant", "scope", "name", "made", "last used", "state")]
    now = time.time()
    rows = [(t.id, t.tenant, t.scope.value, t.name, day(t.created_at), day(t.used_at), state_of(t, now)) for t in tokens]
    print_table(columns, rows)


@command.command(
    "revoke",
    epilog="""\b
Example:
  stager token revoke 4f1c22ab""",
)
@click.argument("token_id")
@state_dir_option
def revoke(token_id: str, state_dir: Path | None) -> None:
    """Make the token TOKEN_ID useless, at once and for good."""
    place = place_of(state_dir)
    with opened(place) as store:
        if not store.revoke(token_id, time.time()):
            raise InvalidInput(f"there is no token {token_id!r}; `stager token list` lists them", code="not_found", subject=token_id)
    take_back(place.storage_key, token_id)
    click.echo(f"token {token_id} is revoked")


@contextmanager
def opened(place: StateDir) -> Iterator[TokenStore]:
    """The tokens of a state directory, for the time of a command."""
    place.make()
    with closing(TokenStore(place.tokens)) as store:
        yield store


def place_of(state_dir: Path | None) -> StateDir:
    return StateDir(settings_of(state_dir).state_dir)


def token_to_dict(token: Token) -> dict[str, object]:
    names = ("id", "tenant", "scope", "name", "created_at", "expires_at", "used_at", "revoked_at")
    return {name: getattr(token, name) for name in names}


def state_of(token: Token, now: float) -> str:
    if token.revoked_at is not None:
        return f"revoked {day(token.revoked_at)}"
    if token.expires_at is None:
        return "good"
    return f"expired {day(token.expires_at)}" if now >= token.expires_at else f"good until {day(token.expires_at)}"


def day(at: float | None) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M") if at is not None else ""
