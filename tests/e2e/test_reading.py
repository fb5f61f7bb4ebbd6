"""What tenants send is read in processes of their own: what one text costs ends that process, and nobody else waits for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from stager.model.errors import Refused, StagerError, Transient
from stager.readers.lines import WorkflowInvalid
from stager.readers.tenants import read_tenants
from stager.service.reader_process import Limits
from stager.service.reading import Reading
from stager.service.settings import Settings
from stager.service.tenancy import Tenancy
from tests.testbed.waiting import wait_until

SMALL = "stager: 1\nname: w\njobs: {a: {run: [a]}}\n"
WORD = "x" * 4000
LARGE = f"stager: 1\nname: w\njobs: {{a: {{run: [a, '{WORD}{{n}}'], foreach: {{n: 1..100000}}, outputs: ['f{{n}}']}}}}\n"
Make = Callable[..., Reading]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    all_made: list[Reading] = []
    tenants = tmp_path / "tenants.toml"
    tenants.write_text("[tenants.alice]\nnative_jobs = true\n")
    tenants.chmod(0o600)

    def made(**limits: float) -> Reading:
        settings = Settings(tmp_path, 10**9, 2, environ=dict(os.environ))
        tenancy = Tenancy(tenants, tmp_path, settings.environ, read_tenants)
        all_made.append(Reading(settings, tenancy, Limits(**limits)))  # type: ignore[arg-type]
        return all_made[-1]

    yield made
    for reading in all_made:
        reading.close()


def body(text: str) -> bytes:
    return json.dumps({"workflow": text}).encode()


def fails(reading: Reading, text: str) -> StagerError:
    with pytest.raises(StagerError) as caught:
        reading.validate(body(text), "alice")
    return caught.value


def is_swept(reading: Reading) -> bool:
    return not list(reading.start.settings.state_dir.glob("upload-*"))


def test_answers_and_errors_are_those_of_the_submissions_and_one_process_gives_them(make: Make) -> None:
    reading = make()
    assert reading.validate(body(SMALL), "alice").jobs == 1
    pid = reading.idle[0].process.pid
    assert json.loads(reading.plan(body(SMALL), "alice"))["plan"]["workflow"]
    assert reading.submission(body(SMALL), "alice").workflow.name == "w"
    problem = fails(reading, SMALL.replace("run", "ran"))
    assert isinstance(problem, WorkflowInvalid) and problem.findings[0].place.line == 3 and "did you mean 'run'" in str(problem)
    assert [each.process.pid for each in reading.idle] == [pid] and is_swept(reading)


@pytest.mark.parametrize(
    ("limits", "kind", "told"),
    [
        ({"cpu_s": 1}, Refused, "takes more than 1 s of a processor"),
        ({"memory_bytes": 400 * 2**20}, Refused, "takes more than 400 MiB of memory"),
        ({"deadline_s": 2.0}, Transient, "was not read and planned within 2 s"),
    ],
)
def test_a_text_that_costs_too_much_is_told_so_and_the_next_is_read(make: Make, limits: dict[str, float], kind: type, told: str) -> None:
    reading = make(**limits)
    problem = fails(reading, LARGE)
    assert isinstance(problem, kind) and told in problem.message
    assert is_swept(reading) and not reading.idle
    # Its process starts anew, which on a busy machine may take longer than such a deadline.
    reading.start = replace(reading.start, limits=replace(reading.start.limits, deadline_s=Limits().deadline_s))
    assert reading.validate(body(SMALL), "alice").jobs == 1


def test_a_process_that_has_died_meanwhile_is_not_asked(make: Make) -> None:
    reading = make()
    reading.validate(body(SMALL), "alice")
    reading.idle[0].kill()
    reading.idle[0].process.wait()
    assert reading.validate(body(SMALL), "alice").jobs == 1


def test_a_process_ends_with_the_service_that_asked_it(make: Make) -> None:
    reading = make()
    reading.validate(body(SMALL), "alice")
    process = reading.idle[0].process
    reading.idle[0].asks.close()
    assert process.wait(timeout=120) == 0


def test_what_a_killed_service_left_is_swept_by_the_next(make: Make, tmp_path: Path) -> None:
    (tmp_path / "upload-1-x").mkdir()
    assert is_swept(make())


def test_who_still_waits_at_the_end_of_the_service_is_told_so_and_no_process_outlives_it(make: Make) -> None:
    reading = make()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(reading.validate, body(LARGE.replace("100000", "4000")), "alice")
        wait_until(lambda: reading.busy, "a process to read")
        [reader] = reading.busy
        reading.close()
        with pytest.raises(Transient) as caught:
            answer.result(60)
    assert caught.value.code == "draining" and reader.process.returncode is not None and not reading.idle and is_swept(reading)
