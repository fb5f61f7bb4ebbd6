"""The workflow that traces one job, and what its trace comes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stager.adapters.strace import Trace
from stager.model.errors import InvalidInput, Refused
from stager.model.profiling import Kind, Sample, Side, group_files
from stager.model.workflow import IMAGE_PATH, IoHint, JobInput, OriginKind, Workflow
from stager.service.tracing import TracedFile, find_strace, trace_sample, traced_files, traced_workflow
from tests.unit.test_plan import external, job, made, workflow_of

PREFIX = ("/usr/bin/strace", "--")


def workflow() -> Workflow:
    files = [
        external("a", 10),
        external("b", 20),
        made("mid"),
        made("other", final=True),
        made("end", final=True),
        made("late", final=True),
    ]
    jobs = [
        job("first", "a", "mid"),
        job("beside", "b", "other"),
        job("setup", "", ""),
        job("look", "mid b", "end", job_type="looking", after=("setup",), retries=3),
        job("after", "end", "late"),
    ]
    return workflow_of(files, jobs, hints={"looking": IoHint("looking", output_bytes=5)}, spill_origin="home")


def test_only_what_the_job_needs_is_run_and_nothing_is_final() -> None:
    boxed = replace(workflow().jobs["look"], inputs=(JobInput("tools", IMAGE_PATH),))
    with pytest.raises(InvalidInput, match="runs in a container"):
        traced_workflow(replace(workflow(), jobs=workflow().jobs | {"look": boxed}), "look", PREFIX, {})
    traced = traced_workflow(workflow(), "look", PREFIX, {})
    assert list(traced.jobs) == ["first", "setup", "look"] and list(traced.files) == ["a", "b", "mid", "end"]
    assert not any(file.is_final for file in traced.files.values()) and traced.spill_origin is None
    look = traced.jobs["look"]
    assert (look.argv, look.retries, look.after) == ((*PREFIX, "true"), 0, ("setup",))
    assert look.job_type == "looking (traced)" and traced.hints[look.job_type].output_bytes == 5
    assert traced.jobs["first"] == workflow().jobs["first"]


def test_a_shell_job_is_traced_with_its_shell() -> None:
    source = workflow()
    source.jobs["look"] = type(source.jobs["look"])("look", "looking", shell="cat mid | wc > end", inputs=source.jobs["look"].inputs)
    assert traced_workflow(source, "look", PREFIX, {}).jobs["look"].argv == (*PREFIX, "/bin/sh", "-c", "cat mid | wc > end")
    source.jobs["look"] = replace(source.jobs["look"], interpreter=("ksh", "-e", "-c"))
    traced = traced_workflow(source, "look", PREFIX, {}).jobs["look"]
    assert traced.command == (*PREFIX, "ksh", "-e", "-c", "cat mid | wc > end")


def test_what_makes_a_given_input_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    traced = traced_workflow(workflow(), "look", PREFIX, {"mid": tmp_path / "kept"})
    assert list(traced.jobs) == ["setup", "look"]
    (source,) = traced.files["mid"].sources
    assert traced.origins[source.location.origin].kind is OriginKind.FILE
    assert f"/{source.location.path}" == str((tmp_path / "kept").resolve())
    for given, message in (({"mid": tmp_path / "gone"}, "there is no"), ({"mjd": tmp_path / "kept"}, "no input 'mjd'; did you mean 'mid'")):
        with pytest.raises(InvalidInput, match=message):
            traced_workflow(workflow(), "look", PREFIX, given)
    with pytest.raises(InvalidInput, match="no job 'lok'; did you mean 'look'"):
        traced_workflow(workflow(), "lok", PREFIX, {})


def test_a_missing_tracer_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="apt-get install strace") as refusal:
        find_strace({"PATH": str(tmp_path)})
    assert refusal.value.code == "tracer_missing"


def lines(state_dir: Path, *calls: str) -> Trace:
    sandbox = f"{state_dir}/attempts/a1-1/sandbox"
    trace = Trace()
    trace.feed(f"7 {call.replace('@', sandbox)}" for call in calls)
    return trace


def test_inputs_are_found_in_the_sandbox_by_their_paths_and_directories_as_a_whole(tmp_path: Path) -> None:
    inputs = [external("a", 10), external("d", 30), external("tool", 5), external("un", 7), external("seen", 8)]
    source = workflow_of(inputs, [job("look", "a d tool un seen")])
    trace = lines(
        tmp_path,
        'execve("./tool", ["./tool"], 0x7ffd /* 3 vars */) = 0',
        'openat(AT_FDCWD<@>, "a", O_RDONLY) = 3<@/a>',
        'read(3<@/a>, ""..., 5) = 5',
        'openat(AT_FDCWD<@>, "d/x", O_RDONLY) = 4<@/d/x>',
        'read(4<@/d/x>, ""..., 10) = 10',
        'openat(AT_FDCWD<@>, "d/y", O_RDONLY) = 4<@/d/y>',
        'read(4<@/d/y>, ""..., 5) = 5',
        'openat(AT_FDCWD<@>, "dx", O_RDONLY) = 4<@/dx>',
        'read(4<@/dx>, ""..., 5) = 5',
        'openat(AT_FDCWD<@>, "seen", O_RDONLY) = 4<@/seen>',
        "lseek(4<@/seen>, 0, SEEK_END) = 8",
        'openat(AT_FDCWD<@>, "/etc/a", O_RDONLY) = 4</etc/a>',
        'read(4</etc/a>, ""..., 500) = 500',
    )
    files = {entry.lfn: entry for entry in traced_files(trace, source.jobs["look"], tmp_path, {"a": 10, "d": 30, "tool": 5})}
    assert files["a"] == TracedFile("a", "a", 10, True, 5, 5, 5)
    assert (files["d"].touched_bytes, files["d"].read_bytes, files["d"].size_bytes) == (15, 15, 30)
    assert files["tool"].touched_bytes is None and files["tool"].why_unknown.startswith("executed")
    assert files["un"] == TracedFile("un", "un", None, False, 0, 0, 0)
    assert files["seen"] == TracedFile("seen", "seen", None, True, 0, 0, 0), "opened, and not read"


@pytest.mark.parametrize(
    "call",
    [
        'rename("a", "b") = 0',
        'renameat2(AT_FDCWD<@>, "a", AT_FDCWD<@>, "b", RENAME_NOREPLACE) = 0',
        'linkat(AT_FDCWD<@>, "a", AT_FDCWD<@>, "b", 0) = 0',
        'rename("tmp.1", "a") = 0',
    ],
)
def test_what_was_given_another_name_or_content_is_unknown(tmp_path: Path, call: str) -> None:
    source = workflow_of([external("a", 10), external("c", 10)], [job("look", "a c")])
    reads = [
        'openat(AT_FDCWD<@>, "b", O_RDONLY) = 3<@/b>',
        'read(3<@/b>, ""..., 5) = 5',
        'rename("c", "d") = -1 EBUSY (Device or resource busy)',
    ]
    renamed, other = traced_files(lines(tmp_path, call, *reads), source.jobs["look"], tmp_path, {})
    assert renamed.touched_bytes is None and renamed.why_unknown == "renamed, linked or replaced"
    assert (other.touched_bytes, other.why_unknown) == (0, ""), "that was tried, and refused"


def test_asynchronous_reads_make_all_unknown(tmp_path: Path) -> None:
    trace = lines(tmp_path, 'openat(AT_FDCWD<@>, "a", O_RDONLY) = 3<@/a>', 'read(3<@/a>, ""..., 5) = 5', "io_uring_setup(8, {flags=0}) = 4")
    (found,) = traced_files(trace, workflow_of([external("a", 10)], [job("look", "a")]).jobs["look"], tmp_path, {"a": 10})
    assert found.touched_bytes is None and "io_uring" in found.why_unknown


def test_a_trace_tells_its_type_how_inputs_are_read_and_not_how_long_it_took() -> None:
    groups = group_files(Side.INPUT, [("p1", 100), ("p2", 100), ("m", 10)]) + group_files(Side.OUTPUT, [("out", 5)])
    measured = Sample(
        store="scratch", attempt="a", job_type="t (traced)", run="r", kind=Kind.RUN, at=3.0, wall_s=9.0, cpu_s=8.0, memory_peak_bytes=7,
        input_bytes=210, input_files=3, read_bytes=999, written_bytes=5, output_bytes=5, output_files=1, files=groups,
    )  # fmt: skip
    files = [TracedFile("p1", "p1", 100, True, 50, 60, 30), TracedFile("p2", "p2", 100, True, 100, 200, 200)]
    sample = trace_sample(measured, "mine", "t", [*files, TracedFile("m", "m", 10, True, 10, 10, 10)])
    assert (sample.store, sample.job_type, sample.kind, sample.input_bytes, sample.output_bytes) == ("mine", "t", Kind.TRACE, 210, 5)
    assert (sample.wall_s, sample.cpu_s, sample.memory_peak_bytes, sample.read_bytes, sample.written_bytes) == (None,) * 5
    assert (sample.touched_bytes, sample.reread_bytes) == (160, 110)
    found = {group.pattern: group for group in sample.files}
    assert (found["p*"].touched_bytes, found["p*"].read_bytes, found["p*"].sequential_bytes) == (150, 260, 230)
    assert found["out"].touched_bytes is None
    unknown = trace_sample(measured, "mine", "t", [*files, TracedFile("m", "m", 10, True, None, None, None, "mapped")])
    assert (unknown.touched_bytes, unknown.reread_bytes) == (None, None)
    assert {group.pattern: group.touched_bytes for group in unknown.files} == {"p*": 150, "m": None, "out": None}
