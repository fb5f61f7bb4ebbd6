"""`stager notify`: who is told of what, and what is still owed."""

from __future__ import annotations

import time
from pathlib import Path

import click

from stager.adapters.notice_box import Owed, owed_in
from stager.adapters.notice_ways import Undelivered, Ways
from stager.cli.options import json_option, print_json, settings_of, state_dir_option
from stager.cli.tables import print_table
from stager.model.errors import InvalidInput, Transient
from stager.model.notices import Notice, NotifyRules
from stager.model.units import format_duration
from stager.readers.lines import nearest
from stager.readers.notify import read_notify
from stager.service.notices import body_of
from stager.service.run_targets import MARK, shown
from stager.service.settings import Settings
from stager.service.state_dir import StateDir, notices_of, notify_file_of


@click.group(
    epilog="""\b
Example:
  stager notify list
  stager notify test ops"""
)
def command() -> None:
    """Show who is told when a run ends, a final is durable, an origin is away or a node finds damage, and try it."""


@command.command(
    "list",
    epilog="""\b
Example:
  stager notify list
  stager notify list --json""",
)
@state_dir_option
@json_option
def list_command(state_dir: Path | None, as_json: bool) -> None:
    """Each target, and what is still owed to it."""
    settings = settings_of(state_dir)
    rules, owed = rules_of(settings), owed_in(notices_of(StateDir(settings.state_dir)))
    rows = []
    for target in rules.targets:
        mine = [each for each in owed if each.target == target.name and not each.given_up]
        given_up = sum(each.target == target.name and each.given_up for each in owed)
        told = {"target": target.name, "way": target.way, "on": sorted(target.kinds), "owed": len(mine), "given_up": given_up}
        oldest_s = time.time() - mine[0].made_at if mine else None
        rows.append(told | {"oldest_s": oldest_s, "tries": mine[0].tries if mine else 0, "problem": problem_of(mine)})
    for name in dict.fromkeys(each.target for each in owed if each.target.startswith(MARK)):
        mine = [each for each in owed if each.target == name and not each.given_up]
        given_up = sum(each.target == name and each.given_up for each in owed)
        told = {"target": shown(name), "way": "workflow", "on": [], "owed": len(mine), "given_up": given_up}
        oldest_s = time.time() - mine[0].made_at if mine else None
        rows.append(told | {"oldest_s": oldest_s, "tries": mine[0].tries if mine else 0, "problem": problem_of(mine)})
    if as_json:
        print_json(rows)
        return
    columns = [(name, "right" if name in ("owed", "given up", "oldest") else "left") for name in COLUMNS]
    print_table(columns, [cells(row) for row in rows])


COLUMNS = ("target", "way", "on", "owed", "given up", "oldest", "problem")


def cells(row: dict[str, object]) -> list[str]:
    oldest_s, kinds = row["oldest_s"], row["on"]
    oldest = format_duration(oldest_s) if isinstance(oldest_s, float) else ""
    on = ", ".join(kinds) if isinstance(kinds, list) else ""
    return [str(row["target"]), str(row["way"]), on, str(row["owed"]), str(row["given_up"]), oldest, str(row["problem"])]


def problem_of(owed: list[Owed]) -> str:
    return next((each.problem for each in owed if each.problem), "")


@command.command(
    "test",
    epilog="""\b
Example:
  stager notify test
  stager notify test ops""",
)
@click.argument("target", required=False)
@state_dir_option
def test_command(target: str | None, state_dir: Path | None) -> None:
    """Send a notice of kind `test` to TARGET (default: to each), now and from here, and say what came of it."""
    settings = settings_of(state_dir)
    rules = rules_of(settings)
    names = [each.name for each in rules.targets]
    if target is not None and target not in names:
        raise InvalidInput(f"there is no target {target!r}{nearest(target, names)}; there are {', '.join(names)}", subject=target)
    now = time.time()
    body = body_of(Notice(f"test-{now:.0f}", "test", now, "a test of stager's notifications", facts={}))
    failed = 0
    for each in rules.targets:
        if target in (None, each.name):
            try:
                Ways(settings.environ, rules.sendmail).deliver(each, f"test-{now:.0f}", body)
                click.echo(f"ok    {each.name}: {each.way}")
            except Undelivered as problem:
                failed += 1
                click.echo(f"FAIL  {each.name}: {problem}")
    if failed:
        raise Transient(f"{failed} of {len(names) if target is None else 1} targets could not be told", code="not_told")


def rules_of(settings: Settings) -> NotifyRules:
    file = settings.notify_file or notify_file_of(StateDir(settings.state_dir))
    rules = read_notify(file)
    if rules is None or not (rules.targets or rules.workflows):
        raise InvalidInput(f"nobody is to be told: {file} names no target; docs/operating/notifications.md says how", subject=str(file))
    return rules


def owed_lines(place: Path) -> list[str]:
    """For `stager status`: a line for each target that something is owed to."""
    lines, owed = [], owed_in(place)
    for name in dict.fromkeys(each.target for each in owed if not each.given_up):
        mine = [each for each in owed if each.target == name and not each.given_up]
        why = problem_of(mine)
        lines.append(f"notifications owed to {shown(name)}: {len(mine)}" + (f" ({why})" if why else ""))
    return lines
