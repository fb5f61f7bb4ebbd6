"""What a user sees while a run goes on: true figures, a line for each thing, at any width."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from stager import wire
from stager.cli.live_panel import live_panel, panel
from stager.cli.progress import one_line, whole_duration
from stager.cli.summary import interrupted
from stager.scheduler.states import RunState
from stager.service.rates import Moved
from stager.service.views import eta_s

LONG = "out/" + "a-final-product-of-the-survey-" * 4
EMPTY = wire.LedgerTotals(**{name: wire.FileCounts(files=0, size_bytes=0) for name in ("at_risk", "safe", "written", "durable")})


def status(**facts: Any) -> wire.RunStatus:
    info = wire.RunInfo(run="survey-1", workflow="survey", state="active", submitted_at=1.0)
    fetch = wire.TransferView(
        transfer="t1", direction="fetch", lfn=LONG, state="running", purpose="prefetch", origin="lab", bytes_done=5, bytes_total=9
    )
    node = wire.NodeView(node="node0", connected=True, capacity_bytes=4_000_000, used_bytes=1_000_000, reserved_bytes=500_000)
    given: dict[str, Any] = {
        "info": info,
        "jobs": {"done": 5, "running": 2, "ready": 3},
        "finals_total": 4,
        "finals_durable": 1,
        "ledger": EMPTY,
        "fetched_bytes": 2_000_000,
        "fetch_bytes_planned": 8_000_000,
        "uploaded_bytes": 0,
        "upload_bytes_planned": 0,
        "fetch_bytes_per_s": 1_500_000.0,
        "upload_bytes_per_s": 0.0,
        "eta_s": 8.19,
        "transfers": [fetch],
        "running": [wire.RunningJob(job=f"{LONG}{n}", attempt=f"a{n}", number=1, started_at=1.0) for n in range(2)],
        "problems": [],
        "nodes": [node],
    }
    return wire.RunStatus(**(given | facts))


def shown(said: wire.RunStatus, width: int = 100) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(panel(said, 65.4, width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def row(lines: list[str], name: str) -> str:
    return next(line for line in lines if line.startswith(name))


def test_a_guess_is_shown_as_no_total() -> None:
    """Of a final whose size nobody declared or measured."""
    said = status(uploaded_bytes=3_000_000, upload_bytes_planned=561_000_000, upload_bytes_guessed=558_000_000)
    assert "3 MB so far" in row(shown(said), "uploaded") and "uploaded 3 MB so far" in one_line(said)
    assert not any("561" in line for line in (*shown(said), one_line(said)))
    known = status(uploaded_bytes=3_000_000, upload_bytes_planned=561_000_000)
    assert "3 MB of 561 MB" in row(shown(known), "uploaded")


def test_jobs_that_are_only_assumed_are_counted_apart() -> None:
    said = status(jobs_assumed=3)
    assert "5/10 (3 of them assumed), 2 running" in row(shown(said), "jobs") and "5/10 (3 of them assumed)" in one_line(said)


def test_the_panel_has_true_figures() -> None:
    lines = shown(status())
    assert lines[0] == "run survey-1 · survey · active · 1 min 05 s · about 8 s left"
    assert "5/10, 2 running: " in row(lines, "jobs")
    assert "2 MB of 8 MB, 1.5 MB/s" in row(lines, "fetched")
    assert "1/4 finals" in row(lines, "durable")
    assert "1.5 MB of 4 MB taken" in row(lines, "space")


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_long_names_never_take_a_second_line(width: int) -> None:
    lines = shown(status(), width)
    assert len(lines) == 6 and max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines] == ["run", "jobs", "fetched", "durable", "space", "↓"]


def test_what_is_not_to_happen_has_no_line_and_what_does_not_move_has_no_speed() -> None:
    lines = shown(status(transfers=[], finals_total=0))
    assert not any(line.startswith(("uploaded", "durable")) for line in lines)
    assert "/s" not in row(lines, "fetched")


def test_trouble_is_seen() -> None:
    fault = wire.ErrorBody(error_class="denied", code="denied", message="lab:x may not be read: ask its owner", subject="x")
    silent = wire.NodeView(node="node0", connected=False, capacity_bytes=4_000_000)
    lines = shown(status(problems=[fault] * 5, jobs={"done": 5, "failed": 2, "skipped": 1}, nodes=[silent]))
    assert "2 failed, 1 skipped" in row(lines, "jobs") and "does not answer" in row(lines, "space")
    assert lines[-4:] == ["  ! lab:x may not be read: ask its owner"] * 3 + ["  and 2 more problems (stager status survey-1)"]


def test_each_of_several_nodes_is_named() -> None:
    nodes = [wire.NodeView(node=f"io{number}", connected=number == 0, capacity_bytes=4_000_000) for number in (0, 1)]
    lines = shown(status(nodes=nodes))
    assert "0 B of 4 MB taken" in row(lines, "io0") and "does not answer" in row(lines, "io1")


def test_one_line_says_the_same() -> None:
    assert one_line(status()) == "active: jobs 5/10, 2 running; fetched 2 MB of 8 MB; finals durable 1/4, about 8 s left"


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (8.19, "8 s"), (9.6, "10 s"), (10.2, "10 s"), (125.0, "2 min 05 s")])
def test_moving_durations_are_whole(seconds: float, text: str) -> None:
    assert whole_duration(seconds) == text


def test_bars_differ_without_colour() -> None:
    full, half, empty = (row(shown(status(finals_total=4, finals_durable=count)), "durable")[9:34] for count in (4, 2, 0))
    assert full == "━" * 25 and empty == "╌" * 25 and half == "━" * 12 + "╌" * 13


@pytest.mark.parametrize("width", [60, 80, 110])
def test_what_the_terminal_echoes_of_ctrl_c_has_room_behind_the_last_line(width: int) -> None:
    """Else the cursor is a line further down than we know, and a line of the panel stays."""
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(live_panel(status(transfers=[]), 65.4, width))
    assert max(map(len, out.getvalue().splitlines())) <= width - len("^C^C")


def test_what_is_waited_for_is_told_once_below_the_figures_and_in_the_line() -> None:
    message = "origin lab: unreachable for 42 s (Connection refused), 3 transfers wait, next try in 12 s"
    facts = {"origin": "lab", "code": "origin_unreachable", "reason": "Connection refused", "fetches": 3, "uploads": 0}
    waiting = wire.WaitingView(since_s=42.0, next_try_s=12.0, message=message, **facts)
    assert sum(message in line for line in shown(status(waiting=[waiting]), 120)) == 1
    assert message in one_line(status(waiting=[waiting]))


def test_time_spent_interrupted_is_no_time_that_work_took() -> None:
    run: Any = SimpleNamespace(state=RunState.ACTIVE, submitted_at=100.0, interrupted_s=60.0)
    sums: Any = SimpleNamespace(work_s=10.0, work_left_s=5.0)
    assert eta_s(run, 100.0 + 60.0 + 20.0, Moved(0, 0), sums, 0) == pytest.approx(20.0)


def test_a_summary_says_how_much_of_its_time_a_run_was_interrupted() -> None:
    said: Any = SimpleNamespace(interrupted_s=60.0)
    assert interrupted(said) == ", 1 min 00 s of it interrupted" and interrupted(SimpleNamespace(interrupted_s=0.0)) == ""  # type: ignore[arg-type]
