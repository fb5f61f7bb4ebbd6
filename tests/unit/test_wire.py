"""The REST bodies: whole workflows travel as values, secrets never show, older clients read newer schedulers."""

from __future__ import annotations

import pytest

from stager import wire
from stager.client import error_of
from stager.model.errors import Denied, ErrorClass, Fault, InvalidInput, Transient
from stager.model.files import Destination, File, FileKind, Location, OnExists, Source
from stager.model.workflow import IoHint, Job, JobInput, JobOutput, OnFailure, Origin, OriginKind, Workflow
from stager.planning.plan import Access, Basis, FilePlan, JobPlan, Plan
from stager.service.api.runs import understood

ORIGINS = {"lab": Origin("lab", OriginKind.SFTP, "sftp://ana@lab/data", "agent", (("bandwidth", "10 MB"),))}
FILES = {
    "in": File("in", sources=(Source(Location("lab", "raw/in"), 10, "m=1;s=10", "site", 1, False),), size_bytes=10, sha256="ab"),
    "out": File("out", FileKind.DIRECTORY, destination=Destination(Location("lab", "out"), OnExists.REPLACE), executable=True),
}
JOB = Job("j", "t", shell="x", inputs=(JobInput("in", "i"),), outputs=(JobOutput("out", "o", True),), env=(("A", "b"),), env_pass=("HOME",))
WORKFLOW = Workflow("w", FILES, {"j": JOB}, ORIGINS, OnFailure.STOP, "lab", {"t": IoHint("t", 1.0, 2, 0.5)}, "w.yml")
PLAN = Plan(
    1, "w", "d", 100, 20, 20, "lab", 1.5, 10, 10, 10,
    (JobPlan("j", 0, 1.0, "node0", 0.0, 1.0, 1.0, Basis.PROFILE, 10, 20),),
    (FilePlan("in", 10, Basis.MEASURED, Access.LINK, "node0", 1, 0, 0),
     FilePlan("out", 10, Basis.DEFAULT, Access.COPY, "node0", 1, -1, -1)),
    ("note",),
)  # fmt: skip


def test_a_workflow_and_its_plan_arrive_as_they_were() -> None:
    sent = wire.SubmitRequest(WORKFLOW, PLAN, wire.Credentials({"lab": {"kind": "sftp"}}, {"HOME": "/home/ana"}), "s1")
    assert wire.decode_submit(wire.encode(sent)) == sent
    assert wire.decode_workflow(wire.encode(WORKFLOW)) == WORKFLOW
    assert wire.decode_plan(wire.encode(PLAN)) == PLAN


def test_credentials_do_not_show_themselves() -> None:
    credentials = wire.Credentials({"lab": {"secret_access_key": "hush"}}, {"TOKEN": "hush"})
    for shown in (
        repr(credentials),
        str(credentials),
        repr(wire.SubmitRequest(WORKFLOW, PLAN, credentials)),
        f"{wire.ResumeRequest(credentials)}",
    ):
        assert "hush" not in shown


def test_a_bad_submit_names_the_place_and_never_the_value() -> None:
    body = wire.encode(wire.SubmitRequest(WORKFLOW, PLAN)).replace(b'"on_failure":"stop"', b'"on_failure":"hush"')
    with pytest.raises(InvalidInput) as caught:
        understood(body)
    assert "on_failure" in caught.value.message and "hush" not in caught.value.message


def test_a_plan_of_another_workflow_is_refused() -> None:
    other = wire.SubmitRequest(Workflow("other", FILES, {"k": Job("k", "t", shell="x", outputs=(JobOutput("out", "o"),))}, ORIGINS), PLAN)
    with pytest.raises(InvalidInput, match="not a plan of this workflow"):
        understood(wire.encode(other))


def test_a_workflow_that_does_not_hold_together_is_refused() -> None:
    circle = {
        "a": Job("a", "t", shell="x", after=("b",)),
        "b": Job("b", "t", shell="x", after=("a",)),
    }
    with pytest.raises(InvalidInput, match="wait for each other"):
        understood(wire.encode(wire.SubmitRequest(Workflow("w", {}, circle), PLAN)))


def test_keys_of_a_newer_scheduler_are_ignored() -> None:
    assert wire.SubmitResponse.model_validate_json('{"run": "w-1", "of_tomorrow": 1}').run == "w-1"


def test_errors_keep_class_code_and_subject() -> None:
    fault = Fault(ErrorClass.DENIED, "auth_failed", "no key", "lab")
    body = wire.ErrorResponse(error=wire.ErrorBody.of(fault)).model_dump_json(by_alias=True).encode()
    error = error_of(403, body)
    assert type(error) is Denied and error.fault() == fault


def test_an_answer_that_is_no_error_of_ours_is_transient() -> None:
    assert type(error_of(502, b"<html>")) is Transient
