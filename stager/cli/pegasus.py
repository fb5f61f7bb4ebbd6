"""`stager pegasus`: what users of Pegasus need to have their workflows staged."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stager.adapters.kept_file import replace_kept
from stager.cli.pegasus_attach import attach
from stager.readers.lines import read_text
from stager.readers.pegasus_entries import (
    TransferSite,
    site_catalog,
    transfer_sites,
    transformation_catalog,
    with_environment,
    with_transformations,
)

catalog_path = click.Path(dir_okay=False, path_type=Path)


@click.group(
    epilog="""\b
Example:
  stager pegasus catalogs --site local --into transformations.yml
  stager pegasus attach submit/me/pegasus/diamond/run0001"""
)
def command() -> None:
    """Stage the data of Pegasus workflows. docs/operating/pegasus.md starts from a submit directory you have."""


command.add_command(attach)


@command.command(
    "catalogs",
    epilog="""\b
Example:
  stager pegasus catalogs > transformations.yml
  stager pegasus catalogs --site local --site condorpool=/opt/stager/bin/stager-transfer --into transformations.yml
  stager pegasus catalogs --env local:PEGASUS_TRANSFER_FALLBACK=/opt/pegasus/bin/pegasus-transfer \\
      --into transformations.yml --sites sites.yml""",
)
@click.option(
    "--site",
    "places",
    multiple=True,
    metavar="NAME[=PATH]",
    help="a site whose transfers stager-transfer shall do, and its path there; default: local, with the one beside this program",
)
@click.option("--env", "variables", multiple=True, metavar="SITE:NAME=VALUE", help="a variable for stager-transfer at that site")
@click.option("--into", type=catalog_path, help="add the entries to this transformation catalog, or to the one in this workflow")
@click.option("--sites", "site_file", type=catalog_path, help="add the environment to this site catalog, or to the one in this workflow")
@click.option("--replace", is_flag=True, help="change entries that are there and say something else")
def catalogs(places: tuple[str, ...], variables: tuple[str, ...], into: Path | None, site_file: Path | None, replace: bool) -> None:
    """Write the catalog entries by which Pegasus calls stager-transfer.

    Of pegasus::transfer, pegasus::cleanup and pegasus::dirmanager, for each site. It prints the text that it adds to no file, to be
    pasted. A file keeps all that is in it, with its comments; the old version is kept beside it, as FILE.old.
    """
    sites = transfer_sites(places, variables, [Path(sys.executable).parent, Path(sys.argv[0]).absolute().parent])
    for path, (old, new) in changed(into, site_file, sites, replace).items():
        if new == old:
            click.echo(f"{path}: all of it is there", err=True)
            continue
        copy = replace_kept(path, old, new)
        click.echo(f"{path}: written; as it was: {copy}", err=True)
    printed = [transformation_catalog(sites)] if into is None else []
    printed += [site_catalog(sites)] if site_file is None and site_catalog(sites) else []
    if len(printed) > 1:
        printed = ["# to the transformation catalog\n" + printed[0], "# to the site catalog\n" + printed[1]]
    click.echo("---\n".join(printed), nl=False)


def changed(into: Path | None, site_file: Path | None, sites: tuple[TransferSite, ...], replace: bool) -> dict[Path, tuple[str, str]]:
    """Each file with its text before and after. Nothing is written before all of it is known to be possible."""
    found: dict[Path, tuple[str, str]] = {}
    for path, amend in ((into, with_transformations), (site_file, with_environment)):
        if path is None:
            continue
        same = next((other for other in found if other.samefile(path)), path)
        old, new = found.get(same) or (read_text(path, str(path)),) * 2
        found[same] = (old, amend(new, sites, replace, str(path)))
    return found
