"""Options that several commands share, and how they print. One rule: the same option has the same name, default and help everywhere."""

from __future__ import annotations

import dataclasses
import functools
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from stager.model.units import parse_duration_s, parse_rate_bytes_per_s, parse_size_bytes
from stager.service.settings import Settings, read_settings, state_dir_of
from stager.service.state_dir import StateDir

if TYPE_CHECKING:
    from stager.model.workflow import Workflow
    from stager.service.prepare import SubmitOptions

    # Generic to type checkers; at run time only the newest of the releases that we allow can be subscripted.
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType


VALUE_SHOWN_CHARS = 200


class Size(ParamType):
    """`20 GB`, `512MiB`, `4096`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_size_bytes(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class Duration(ParamType):
    """`90`, `20 min`, `1.5h`; in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration_s(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class Rate(ParamType):
    """`50 MB/s`, `1 Gbit/s`; in bytes per second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_rate_bytes_per_s(str(value))
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class RunName(ParamType):
    """A run's id or the beginning of one; completed from the records of the state directory, which no scheduler need serve for that."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        records = StateDir(state_dir_of(ctx.params.get("state_dir"))).runs
        # Every command has options, and few are completed.
        from stager.adapters.run_records import names_in

        return [CompletionItem(run) for run in names_in(records) if run.startswith(incomplete)]


state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="STAGER_STATE_DIR",
    show_envvar=True,
    help="the directory of runs, cache and journal; one scheduler for each",
)


@dataclass(frozen=True, slots=True)
class Where:
    """The scheduler that a command is for: that of a state directory, or a service."""

    state_dir: Path | None
    server: str | None
    token_file: Path | None


def where_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--state-dir, or --server with --token-file: as one value, `where`."""

    @functools.wraps(command)
    def collected(*args: Any, state_dir: Path | None, server: str | None, token_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, where=Where(state_dir, server, token_file), **kwargs)

    return state_dir_option(server_option(token_file_option(collected)))


class NamedValue(ParamType):
    """`seed=7`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, sign, text = str(value).partition("=")
        if not sign or not name:
            self.fail(f"{value!r} is no name with a value; write as in seed=7", param, ctx)
        return name, text


@dataclass(frozen=True, slots=True)
class Given:
    """The values of a workflow's parameters, as they were given."""

    pairs: tuple[tuple[str, str], ...] = ()
    file: Path | None = None


def params_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--param and --params: as one value, `given`."""

    @functools.wraps(command)
    def collected(*args: Any, param: tuple[tuple[str, str], ...], params_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, given=Given(param, params_file), **kwargs)

    return param_option(params_file_option(collected))


param_option = click.option(
    "--param", type=NamedValue(), multiple=True, metavar="NAME=VALUE", help="the value of a parameter of the workflow; may be repeated"
)
params_file_option = click.option(
    "--params",
    "params_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="values of parameters, as YAML or JSON; --param counts more",
)
server_option = click.option(
    "--server", metavar="URL", envvar="STAGER_SERVER", show_envvar=True, help="a service (`stager serve`) instead of a state directory"
)
token_file_option = click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="holds the token of that service; default: STAGER_TOKEN",
)
capacity_option = click.option(
    "--capacity", type=Size(), help="space of the embedded I/O node, as in '20 GB'; default: 80 % of what is free"
)
cores_option = click.option("--cores", type=click.IntRange(1), help="jobs' cores on this machine; default: all")
ignore_profiles_option = click.option(
    "--ignore-profiles",
    is_flag=True,
    help="plan without the measurements of job types, to compare; declarations of the workflow still count",
)
no_direct_option = click.option(
    "--no-direct",
    is_flag=True,
    help="keep all inputs: have no job read one directly at its origin, also where keeping it does not pay",
)
copies_option = click.option(
    "--copies",
    type=click.IntRange(1),
    help="on how many I/O nodes what jobs make is to be until its last reader is done or it is home; default: 1, or STAGER_COPIES",
)
priority_option = click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    default=0,
    help="among your own runs: jobs of a run with a higher one begin first, from -100 to 100; default: 0",
)
reuse_option = click.option(
    "--reuse/--no-reuse",
    default=None,
    help="do not make again what an earlier run made of the same and is still where it is wanted; --reuse also hashes inputs of this "
    "machine that no run read yet; default: STAGER_REUSE, or on",
)
verify_option = click.option(
    "--verify-inputs",
    is_flag=True,
    help="believe nothing of inputs because an earlier run read them: hash those of this machine, and fetch the others anew",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run may cost, and when it is to have ended, as it was given."""

    budget: str | None = None
    finish_by: str | None = None
    objective: str | None = None
    anyway: bool = False
    prices: Path | None = None

    @property
    def asked(self) -> bool:
        """Somebody wants one of several ways chosen. `none` takes away what a workflow says of itself."""
        said = [value for value in (self.budget, self.finish_by) if value not in (None, "none")]
        return bool(said or self.objective or self.anyway or self.prices)


def bounds_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--budget, --finish-by and what goes with them: as one value, `bounds`."""

    @functools.wraps(command)
    def collected(
        *args: Any,
        budget: str | None,
        finish_by: str | None,
        objective: str | None,
        budget_anyway: bool,
        prices: Path | None,
        **kwargs: Any,
    ) -> Any:
        return command(*args, bounds=Bounds(budget, finish_by, objective, budget_anyway, prices), **kwargs)

    for option in reversed((budget_option, finish_by_option, objective_option, budget_anyway_option, prices_option)):
        collected = option(collected)
    return collected


def bounded(asked: SubmitOptions, bounds: Bounds, settings: Settings, workflow: Workflow) -> SubmitOptions:
    """With them, where some are given, or the workflow has some itself."""
    if not bounds.asked and not workflow.bounds.said:
        return asked
    # Others begin sooner without this.
    from stager.cli.bounds import within

    return dataclasses.replace(asked, within=within(bounds, workflow.bounds, settings))


budget_option = click.option(
    "--budget",
    metavar="MONEY",
    help="what the run may cost, as in '20 USD': refused where it may cost more, paused before it does; none: whatever FILE says",
)
finish_by_option = click.option(
    "--finish-by",
    metavar="TIME",
    help="when it is to have ended, as in 18:00, +3h or 2026-11-27T18:00:00+01:00: refused where it may not; none: whatever FILE says",
)
objective_option = click.option(
    "--objective",
    type=click.Choice(["time", "cost"]),
    help="of the ways that fit take the fastest or the cheapest; default: cost with --finish-by, else time",
)
budget_anyway_option = click.option(
    "--budget-anyway", is_flag=True, help="begin also where it may cost more than the budget, and be paused before it does"
)
rerun_option = click.option(
    "--rerun", metavar="JOB", multiple=True, help="run this job again: its id, its type, or all; may be given several times"
)
until_option = click.option(
    "--until", metavar="NAME", multiple=True, help="only what is needed for this job, type of jobs or file; may be given several times"
)
from_option = click.option(
    "--from",
    "begin",
    metavar="JOB",
    multiple=True,
    help="run this job (its id, or its type) and all that follows again, and nothing before it; may be given several times",
)


@dataclass(frozen=True, slots=True)
class Reuse:
    """What is not to be made again, how far a run goes, and what is believed of inputs."""

    reuse: bool | None = None
    rerun: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    begin: tuple[str, ...] = ()
    verify_inputs: bool = False

    @property
    def is_part(self) -> bool:
        """Somebody asks for less than a run of all jobs."""
        return bool(self.reuse or self.rerun or self.until or self.begin)

    def check(self) -> None:
        if (self.rerun or self.begin) and self.reuse is False:
            raise click.UsageError("--rerun and --from say what is not to be reused of what else is: leave out --no-reuse")

    def words(self) -> dict[str, Any]:
        """For options of a submit, here or at a service."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def reuse_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--reuse, --rerun, --until, --from, --verify-inputs: as one value, `asked`."""

    @functools.wraps(command)
    def collected(*args: Any, **kwargs: Any) -> Any:
        said = {field.name: kwargs.pop(field.name) for field in fields(Reuse)}
        return command(*args, asked=Reuse(**said), **kwargs)

    for option in (verify_option, from_option, until_option, rerun_option, reuse_option):
        collected = option(collected)
    return collected


spill_option = click.option("--spill", metavar="ORIGIN", help="name of an origin where intermediates may go when space is short")
output_origin_option = click.option(
    "--output-origin", metavar="URL", help="where the outputs of a Pegasus workflow go, as in file:///data/out or s3://bucket/prefix"
)
prices_option = click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="a price table of your own (docs/formats/prices.md); default: the one of this version",
)
json_option = click.option("--json", "as_json", is_flag=True, help="print JSON for programs")


def settings_of(state_dir: Path | None, capacity: int | None = None, cores: int | None = None) -> Settings:
    return read_settings(state_dir=state_dir, capacity_bytes=capacity, cores=cores)


def params_text(values: Mapping[str, str]) -> str:
    """Values of parameters on one line, as `--param` takes them."""
    return " ".join(param_text(name, value) for name, value in values.items())


def param_text(name: str, value: str) -> str:
    shown = value if len(value) <= VALUE_SHOWN_CHARS else f"{value[:VALUE_SHOWN_CHARS]}…"
    return f"{name}={shlex.quote(shown) if shown.isprintable() else repr(shown)}"


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, ensure_ascii=False))
