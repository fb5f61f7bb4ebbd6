"""`stager worker`, which runs jobs on this host, and `stager worker up`, which has another one do so."""

from __future__ import annotations

import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

import click

from stager.cli.by_ssh import bring_down, bring_up, down_options, scratch_path, size_option, up_options
from stager.cli.options import Size
from stager.model.errors import InvalidInput
from stager.model.topology import HERE

SCRATCH_SHARE = 0.8


class OrAddress(click.Group):
    """A command that takes an address; where its first word is the name of one below it, it is that one."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        below = self.commands.get(args[0]) if args else None
        if below is not None:
            return below.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.group(
    cls=OrAddress,
    invoke_without_command=True,
    no_args_is_help=False,
    subcommand_metavar="",
    context_settings={"allow_interspersed_args": True},
    epilog="""\b
Example:
  stager worker tcp://127.0.0.1:8786 --node node0=$HOME/.local/state/stager/node --scratch /scratch/stager
  stager worker tls://10.0.0.1:8786 --tls-dir pool-tls --node io1 --scratch /scratch --cores 16""",
)
@click.argument("pool", metavar="ADDRESS")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    metavar="ID[=STORE]",
    help="the I/O node that jobs read from. With the directory of its store, and may be repeated, where this host shares files with it and "
    "with the scheduler; without where it does not, so that jobs work on copies",
)
@click.option("--name", default=None, help="how the scheduler calls this host; default: its host name")
@click.option("--cores", type=click.IntRange(1), help="cores for jobs; default: all")
@click.option("--memory", type=Size(), help="memory for jobs; default: all")
@click.option("--scratch", type=click.Path(file_okay=False, path_type=Path), required=True, help="the directory for jobs' sandboxes")
@click.option("--scratch-size", type=Size(), help="how much of that disk jobs may use; default: 80 % of what is free now")
@click.option(
    "--tls-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="the pool's certificate, for tls:// addresses"
)
def command(
    pool: str,
    nodes: tuple[str, ...],
    name: str | None,
    cores: int | None,
    memory: int | None,
    scratch: Path,
    scratch_size: int | None,
    tls_dir: Path | None,
) -> None:
    """Run jobs of the pool at ADDRESS on this host. SIGTERM and Ctrl-C end it, and the jobs go on: they are taken up when it is started
    again. Whoever reaches the pool runs programs as you.
    """
    from stager.adapters.binary import find_ionode
    from stager.adapters.dask_pool import need_distributed
    from stager.adapters.host_process import HostSettings, HostWorker, free_at, memory_here
    from stager.service.settings import environment, keep_limits_of, pool_of

    need_distributed()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    scratch = scratch.absolute()
    node, linked = nodes_of(nodes)
    settings = HostSettings(
        address=pool_of(pool),
        host=host_name(name or socket.gethostname()),
        node=node,
        linked=linked,
        scratch=scratch,
        cores=cores or len(os.sched_getaffinity(0)),
        memory_bytes=memory if memory is not None else memory_here(),
        scratch_bytes=scratch_size if scratch_size is not None else int(free_at(scratch) * SCRATCH_SHARE),
        binary=find_ionode(environment()),
        tls=tls_dir.absolute() if tls_dir is not None else None,
        keep=keep_limits_of(environment()),
        environ=environment(),
    )
    HostWorker(settings).run()


def host_name(name: str) -> str:
    """It becomes the name of a resource and of Dask's worker."""
    if name == HERE:
        raise InvalidInput(f"{name!r} is the scheduler's own machine; name this host otherwise", subject="name")
    if not name.replace("-", "").replace(".", "").replace("_", "").isalnum() or len(name) > 128:
        raise InvalidInput(f"{name!r} is no name of a host; use letters, digits and ._-", subject="name")
    return name


def nodes_of(words: tuple[str, ...]) -> tuple[str, dict[str, Path]]:
    """The node that jobs read from, and the stores of those that share this host's files."""
    if not any("=" in word for word in words):
        if len(words) > 1:
            text = f"a host that shares no files with its I/O nodes is beside one of them, and not beside {' and '.join(words)}"
            raise InvalidInput(f"{text}; name the one that its jobs are to read from", subject="node")
        return words[0], {}
    linked = linked_nodes(words)
    return next(iter(linked)), linked


def linked_nodes(words: tuple[str, ...]) -> dict[str, Path]:
    found = {}
    for word in words:
        node, _, store = word.partition("=")
        if not node or not store:
            raise InvalidInput(f"{word!r} names no I/O node; write ID=STORE, as in io1=/srv/stager/store, for all or none", subject="node")
        if not Path(store).is_dir():
            raise InvalidInput(f"no I/O node has its store in {store}: there is no such directory", subject=store)
        found[node] = Path(store).absolute()
    return found


@command.command(
    "up",
    epilog="""\b
Example:
  stager worker up ssh://me@io1/srv/stager --cores 16
  stager worker up ssh://me@h2 --beside io1 --scratch /scratch""",
)
@click.argument("url", metavar="ssh://[USER@]HOST[:PORT][/DIR]")
@click.option("--beside", default="", metavar="ID", help="the I/O node that jobs read from, where none is in DIR")
@click.option("--cores", type=click.IntRange(1), help="cores for jobs; default: all")
@size_option("--memory", "memory for jobs; default: all")
@click.option("--scratch", type=click.Path(path_type=Path), help="the directory there for jobs' sandboxes; default: in DIR")
@size_option("--scratch-size", "how much of that disk jobs may use; default: 80 % of what is free")
@up_options
def up(
    url: str, beside: str, cores: int | None, memory: int | None, scratch: Path | None, scratch_size: int | None, node_id: str, **how: Any
) -> None:
    """Copy this stager to a host by ssh, and have a worker of the scheduler's pool run there. `stager ionode up` says what is needed for
    that. The I/O node in DIR goes on, and jobs read from it.
    """
    from stager.service.host_node import Wanted

    wanted = Wanted(node_id, None, "", None, None, beside, cores, memory, scratch_path(scratch), scratch_size)
    bring_up(url, is_node=False, wanted=wanted, how=how)


@command.command(
    "down",
    epilog="""\b
Example:
  stager worker down ssh://me@io1/srv/stager""",
)
@click.argument("url", metavar="ssh://[USER@]HOST[:PORT][/DIR]")
@click.option("--now", "is_now", is_flag=True, help="do not wait for its jobs: they go on, and their results wait until it is up again")
@down_options
def down(url: str, is_now: bool, **how: Any) -> None:
    """Drain a host that was brought up, and end its worker when no job runs there. Its I/O node goes on."""
    bring_down(url, is_node=False, is_now=is_now, how=how)
