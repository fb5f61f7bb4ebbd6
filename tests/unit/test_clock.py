"""The scheduler's clock: whoever sets the wall clock moves no timer, in a running scheduler, over a restart and over a reboot."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stager.cli.jobs import took
from stager.runtime.clock import SteadyClock
from stager.runtime.inbox import Inbox
from stager.scheduler import events as ev
from stager.scheduler.states import JobState
from stager.service.counters import Newest
from stager.service.views import job_view
from stager.worker import called
from stager.worker.ticks import boot_id, since_boot_s

YEAR_S = 365 * 86_400.0
PROJECT = Path(__file__).parents[2]
AIRFLOW = "plugins/airflow/src/airflow/providers/stager"
# What is a date for others, or is compared with a date that others made.
DATES = {
    f"{AIRFLOW}/service.py": "the age of a mark that another worker made; a clock that is set costs or saves some patience",
    f"{AIRFLOW}/loose.py": "what a DagRun left goes on a date",
    "stager/adapters/cluster_tls.py": "a certificate ends on a date",
    "stager/adapters/host_agent.py": "what a host's wall clock says beside what it tells, so that a scheduler finds its own date of it",
    "stager/adapters/host_words.py": "when a job on a host began, by the scheduler's wall clock",
    "stager/adapters/host_join.py": "a certificate ends on a date, and is renewed before it",
    "stager/service/budgets.py": "a run is to end by a date",
    "stager/cli/cluster.py": "an invite ends on a date",
    "stager/service/joining.py": "an invite ends on a date",
    "stager/service/up_by_ssh.py": "an invite ends on a date",
    "stager/adapters/notice_ways.py": "the time that is signed, which the receiver compares with its own",
    "stager/cli/notify.py": "how old a notice is, and when a test is sent",
    "stager/service/notifying.py": "a notice is given up after a week, and forgotten after a month",
    "stager/cli/jobs.py": "whether a date is today's",
    "stager/cli/results.py": "what was not used since a date is forgotten",
    "stager/cli/token.py": "a token ends on a date",
    "stager/service/rest/auth.py": "a token ends on a date",
    "stager/service/rest/contents.py": "directories of runs that are over go after a day: by the times of files",
    "stager/service/sent_contents.py": "what nothing needs goes after an hour, a part after a day: by the times of files",
    "stager/service/made_for_jobs.py": "an image that was pulled goes after a day: by the times of files",
    "stager/service/rest/storage.py": "a key to objects ends on a date, which the node holds it to",
    "stager/runtime/clock.py": "the start of the scheduler's clock",
    "stager/worker/called.py": "when a job began, and how long it took where only the wall clock can tell",
}


class Machine:
    """Two clocks that a test moves."""

    def __init__(self, wall: float = 1_800_000_000.0, up_s: float = 5_000.0) -> None:
        self.wall, self.up_s = wall, up_s

    def passes(self, seconds: float) -> None:
        self.wall, self.up_s = self.wall + seconds, self.up_s + seconds

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.up_s)


def due(inbox: Inbox) -> list[Any]:
    """What it would give now, without waiting."""
    with inbox.changed:
        return inbox._batch()[0]


@pytest.mark.parametrize("set_by_s", [YEAR_S, -YEAR_S, 3600.0, -1.0])
def test_a_wall_clock_that_is_set_moves_no_timer(set_by_s: float) -> None:
    machine = Machine()
    inbox = Inbox(machine.clock())
    began = machine.wall
    inbox.wake_at(began + 1.0)
    machine.wall += set_by_s
    machine.passes(0.9)
    assert due(inbox) == []
    machine.passes(0.2)
    [woken] = due(inbox)
    assert type(woken) is ev.Woken and woken.at == pytest.approx(began + 1.1)


def test_a_year_ahead_and_back_leaves_a_second_a_second() -> None:
    """As it was seen: an event stamped meanwhile kept `at` a year ahead, and all that was asked for later was due in a year."""
    machine = Machine()
    inbox = Inbox(machine.clock())
    machine.wall += YEAR_S
    inbox.put(ev.NodeLost(at=0.0, node="n"))
    [lost] = due(inbox)
    machine.wall -= YEAR_S
    inbox.wake_at(lost.at + 1.0)
    machine.passes(1.1)
    assert [type(event) for event in due(inbox)] == [ev.Woken]


@pytest.mark.parametrize("ahead_s", [YEAR_S, 10.0])
def test_after_a_journal_that_ends_in_time_to_come_timers_keep_their_distance(ahead_s: float) -> None:
    """The clock was set back while nothing ran, or a jump was journaled by a version that followed it. A reboot counts anew."""
    machine = Machine(up_s=3.0)
    last_at = machine.wall + ahead_s
    clock = machine.clock()
    clock.go_on_from(last_at)
    inbox = Inbox(clock)
    inbox.last_at = last_at
    inbox.wake_at(last_at + 1.0)
    assert due(inbox) == []
    machine.passes(1.1)
    [woken] = due(inbox)
    assert woken.at == pytest.approx(last_at + 1.1)


def test_after_an_older_journal_it_is_the_wall_clocks_time() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.go_on_from(machine.wall - 3600)
    assert clock() == machine.wall and clock.ahead_s() == 0


def test_what_a_process_stamped_by_the_wall_clock_keeps_its_age() -> None:
    machine = Machine()
    clock = machine.clock()
    began = clock()
    machine.wall -= YEAR_S
    machine.passes(100)
    assert clock.of_wall(machine.wall - 10) == pytest.approx(began + 90)


def test_a_wait_is_looked_at_again_since_a_machine_may_sleep() -> None:
    inbox = Inbox(Machine().clock())
    inbox.wake_at(2_000_000_000.0)
    assert inbox._wait_s() == 10.0


def test_how_long_an_engines_task_took_is_time_that_passed() -> None:
    now = since_boot_s()
    here = {"staged_at_s": 1.0, "boot_id": boot_id(), "staged_since_boot_s": now - 5}
    assert called.waited_s(here) == pytest.approx(5, abs=2)
    assert called.waited_s(here | {"boot_id": "another"}) > YEAR_S
    assert called.waited_s({"staged_at_s": 1.0}) > YEAR_S


def test_how_long_a_job_runs_is_told_by_the_clock_that_saw_it_begin() -> None:
    """Of a scheduler whose clock is a year ahead of the wall clock of who looks."""
    began = time.time() + YEAR_S
    newest = Newest(began)
    job = SimpleNamespace(state=JobState.RUNNING, attempts=1, fault=None, reused_from="")
    workflow = SimpleNamespace(jobs={"j": SimpleNamespace(job_type="t")})
    run: Any = SimpleNamespace(id="r", jobs={"j": job}, workflow=workflow, assumed=frozenset())
    counters: Any = SimpleNamespace(of=lambda run: SimpleNamespace(newest={"j": newest}, exit_codes={}))
    view = job_view(run, "j", counters, False, began + 90)
    assert view.running_s == 90 and took(view) == "1 min 30 s so far"
    job.state, newest.duration_s = JobState.DONE, 91.0
    view = job_view(run, "j", counters, False, began + 200)
    assert view.running_s is None and took(view) == "1 min 31 s"


@pytest.mark.slow
def test_nothing_waits_by_the_wall_clock() -> None:
    """Each module that reads it is listed here with its reason."""
    readers = set()
    for path in (each for place in ("stager", AIRFLOW) for each in (PROJECT / place).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.utcnow"):
                readers.add(path.relative_to(PROJECT).as_posix())
    assert readers == set(DATES)
