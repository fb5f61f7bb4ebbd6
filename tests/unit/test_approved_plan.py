"""A plan in a file, run later: free disk may have moved the default capacity, what was asked for may not differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.cli.approved_plan import as_approved
from stager.model.errors import Refused
from stager.model.files import Destination, File, Location
from stager.model.profile import NO_PROFILES
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Plan
from stager.planning.plan_json import to_json
from stager.service.prepare import SubmitOptions, plan_as_asked
from stager.service.settings import Settings, read_settings

MB = 10**6


def chains(count: int = 4) -> Workflow:
    """Each chain makes 30 MB that one job reads; a capacity of all of them lets all first jobs run first."""
    files = {"end": File("end", size_bytes=1, destination=Destination(Location("lab", "end")))}
    jobs = {}
    for n in range(count):
        files |= {f"big{n}": File(f"big{n}", size_bytes=30 * MB), f"small{n}": File(f"small{n}", size_bytes=MB)}
        jobs[f"make{n}"] = Job(f"make{n}", "make", ("true",), outputs=(JobOutput(f"big{n}", "b"),))
        jobs[f"fold{n}"] = Job(f"fold{n}", "fold", ("true",), inputs=(JobInput(f"big{n}", "b"),), outputs=(JobOutput(f"small{n}", "s"),))
    jobs["end"] = Job(
        "end", "end", ("true",), inputs=tuple(JobInput(f"small{n}", f"s{n}") for n in range(count)), outputs=(JobOutput("end", "e"),)
    )
    return Workflow("w", files, jobs, {"lab": Origin("lab", OriginKind.FILE, "file:///data")})


def settings(capacity_bytes: int, *, given: bool) -> Settings:
    return Settings(Path("/nowhere"), capacity_bytes, 1, capacity_given=given)


def planned(capacity_bytes: int, workflow: Workflow | None = None) -> Plan:
    return fresh(workflow or chains(), settings(capacity_bytes, given=True))


def fresh(workflow: Workflow, settings: Settings) -> Plan:
    plan = plan_as_asked(workflow, settings, NO_PROFILES, SubmitOptions())
    check_capacity(plan)
    return plan


def approved(workflow: Workflow, settings: Settings, file: Path) -> Plan:
    return as_approved(file, fresh(workflow, settings), workflow, settings, NO_PROFILES, SubmitOptions())


def test_a_default_capacity_that_moved_does_not_refuse_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(planned(600 * MB)))
    run = approved(chains(), settings(500 * MB, given=False), file)
    assert run == planned(600 * MB)


def test_where_less_is_free_than_the_planned_order_needs_no_other_plan_is_run_instead(tmp_path: Path) -> None:
    roomy, tight = planned(600 * MB), planned(70 * MB)
    assert [job.job for job in roomy.jobs] != [job.job for job in tight.jobs], "the case needs two orders"
    file = tmp_path / "plan.json"
    file.write_text(to_json(roomy))
    with pytest.raises(Refused) as refused:
        approved(chains(), settings(70 * MB, given=False), file)
    said = refused.value.message
    assert refused.value.code == "plan_changed" and "capacity was 600000000" in said and "another place in the order" in said, said
    assert f"may need {roomy.peak_live_bytes} bytes" in said and "--capacity" in said, said


def test_a_capacity_that_was_asked_for_is_part_of_what_was_approved(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(planned(600 * MB)))
    with pytest.raises(Refused, match="capacity was 600000000"):
        approved(chains(), settings(500 * MB, given=True), file)


def test_what_else_changed_is_refused_whatever_the_capacity(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(planned(600 * MB)))
    with pytest.raises(Refused, match="is gone"):
        approved(chains(3), settings(500 * MB, given=False), file)


def test_too_little_capacity_is_said_with_how_to_give_more(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"stager shutdown.*--capacity or STAGER_CAPACITY"):
        planned(MB)


def test_settings_know_whether_the_capacity_was_given(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    assert not read_settings(state_dir=tmp_path, environ=env).capacity_given
    assert read_settings(state_dir=tmp_path, environ=env, capacity_bytes=MB).capacity_given
    assert read_settings(state_dir=tmp_path, environ=env | {"STAGER_CAPACITY": "1 GB"}).capacity_given
    (tmp_path / ".config" / "stager").mkdir(parents=True)
    (tmp_path / ".config" / "stager" / "config.toml").write_text('capacity = "1 GB"\n')
    assert read_settings(state_dir=tmp_path, environ=env).capacity_given
