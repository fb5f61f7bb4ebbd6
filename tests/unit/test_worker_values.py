"""The worker's values: what an attempt may name, what its job sees, what a result means, and where files lie."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.errors import ErrorClass, Fault, InvalidInput
from stager.model.files import FileKind
from stager.worker import AttemptInput, AttemptOutput, AttemptResult, AttemptSpec, InputAccess, Measures, Outcome, Place
from stager.worker.attempt import fault_of, measures_of
from stager.worker.captured import put_log
from stager.worker.environment import job_environment
from stager.worker.hints import with_hint
from stager.worker.place import NAME_LENGTH_MAX, json_bytes, log_paths, read_json, safe_name, value_of, write_json
from stager.worker.worker import last_line


def spec(**fields: object) -> AttemptSpec:
    return AttemptSpec(**({"attempt_id": "a1", "run_id": "r1", "job_id": "j1", "argv": ("true",)} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "./a", "a//b", "a/", "a\0b", ".tmp", ".tmp/x"])
def test_no_path_leaves_the_sandbox(path: str) -> None:
    for fields in (
        {"inputs": (AttemptInput("f", "g", path),)},
        {"outputs": (AttemptOutput("f", "g", path),)},
        {"cwd": path} if path else {"inputs": (AttemptInput("f", "g", path),)},
    ):
        with pytest.raises(InvalidInput):
            spec(**fields)


@pytest.mark.parametrize("attempt_id", ["", ".", "..", "a/b", "a b", "x" * 129, "a\n", "ä"])
def test_an_attempt_id_is_a_plain_name(attempt_id: str) -> None:
    with pytest.raises(InvalidInput, match="attempt"):
        spec(attempt_id=attempt_id)
    with pytest.raises(InvalidInput, match="attempt"):
        Place.of(Path("/state"), attempt_id)


def test_an_attempt_has_a_command() -> None:
    assert spec(argv=("a", "b")).argv == ("a", "b")
    with pytest.raises(InvalidInput, match="'j1' has no command"):
        spec(argv=())


def test_captured_output_must_be_declared() -> None:
    with pytest.raises(InvalidInput, match="'said.txt', which is not among its outputs"):
        spec(stdout="said.txt")
    spec(stdout="said.txt", outputs=(AttemptOutput("f", "g", "said.txt"),))


def test_what_is_kept_for_adopting_tells_no_secret_and_comes_back() -> None:
    one = spec(
        env={"TOKEN": "hush"},
        argv=("run", "--password=hush"),
        inputs=(AttemptInput("f", "g", "in/x", InputAccess.COPY),),
        outputs=(AttemptOutput("p", "a1", "out", FileKind.DIRECTORY, True), AttemptOutput("q", "a1", "said")),
        stdout="said",
        reserve_bytes=17,
        number=3,
        want_sha256=True,
    )
    text = json.dumps(one.to_json())
    assert "hush" not in text and "TOKEN" not in repr(one)
    back = AttemptSpec.from_json(json.loads(text))
    assert (back.inputs, back.outputs, back.stdout, back.number) == (one.inputs, one.outputs, "said", 3)
    assert (back.reservation, back.reserve_bytes, back.want_sha256) == ("a1", 17, True)
    with pytest.raises(ValueError, match="newer stager"):
        AttemptSpec.from_json(one.to_json() | {"version": 2})


def test_the_jobs_environment_is_small_and_known() -> None:
    env = job_environment(spec(), "/s", {})
    assert env == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/s",
        "TMPDIR": "/s/.tmp",
        "STAGER_RUN": "r1",
        "STAGER_JOB": "j1",
        "STAGER_ATTEMPT": "a1",
    }
    os.environ["STAGER_TEST_LEAK"] = "x"
    try:
        assert "STAGER_TEST_LEAK" not in job_environment(spec(), "/s", {})
    finally:
        del os.environ["STAGER_TEST_LEAK"]


def test_declared_variables_win_over_inherited_ones_and_ours_over_all() -> None:
    env = job_environment(spec(env={"LANG": "de", "HOME": "/h", "STAGER_JOB": "lie"}), "/s", {"LANG": "fr", "TZ": "UTC", "PATH": "/opt"})
    assert (env["LANG"], env["TZ"], env["PATH"], env["HOME"], env["STAGER_JOB"]) == ("de", "UTC", "/opt", "/h", "j1")


REAPED = {"outcome": "exited", "exit_code": 0, "signal": None, "message": None, "wall_s": 1.0, "cpu_user_s": 0.5, "cpu_system_s": 0.0}


@pytest.mark.parametrize(
    ("said", "outcome", "kind", "code", "words"),
    [
        ({"exit_code": 3}, Outcome.FAILED, ErrorClass.TRANSIENT, "job_failed", "exit code 3"),
        ({"exit_code": 127}, Outcome.FAILED, ErrorClass.TRANSIENT, "job_failed", "a program was not found"),
        ({"exit_code": 141}, Outcome.FAILED, ErrorClass.TRANSIENT, "job_failed", "stopped reading"),
        (
            {"outcome": "signalled", "message": "the job ended by signal 9"},
            Outcome.FAILED,
            ErrorClass.TRANSIENT,
            "job_signalled",
            "signal 9",
        ),
        ({"outcome": "timeout", "message": "the job ran longer"}, Outcome.FAILED, ErrorClass.TRANSIENT, "job_timeout", "ran longer"),
        ({"outcome": "killed"}, Outcome.KILLED, ErrorClass.TRANSIENT, "killed", "on request"),
        (
            {"outcome": "not_started", "code": "program_not_found", "message": "no x"},
            Outcome.FAILED,
            ErrorClass.INVALID_INPUT,
            None,
            "no x",
        ),
        ({"outcome": "not_started", "code": "cannot_link", "message": "m"}, Outcome.FAILED, ErrorClass.REFUSED, None, "m"),
        ({"outcome": "not_started", "code": "link_failed", "message": "m"}, Outcome.FAILED, ErrorClass.TRANSIENT, None, "m"),
        (
            {"outcome": "memory", "memory_used_bytes": 2_100_000_000, "memory_limit_bytes": 10**9},
            Outcome.FAILED,
            ErrorClass.INVALID_INPUT,
            "memory_exceeded",
            "used 2.1 GB where memory: 1 GB is declared; it was ended",
        ),
        (
            {"outcome": "memory", "memory_by": "cgroup", "memory_used_bytes": 10**9, "memory_limit_bytes": 10**9},
            Outcome.FAILED,
            ErrorClass.INVALID_INPUT,
            "memory_exceeded",
            "wanted more where memory: 1 GB is declared; it was ended",
        ),
        ({"outcome": "not_started", "code": "fenced"}, Outcome.LOST, ErrorClass.TRANSIENT, "attempt_lost", "again"),
        ({"outcome": "not_started", "code": "not_begun"}, Outcome.FAILED, ErrorClass.TRANSIENT, "attempt_not_begun", "had not begun"),
    ],
)
def test_what_a_result_means(said: dict[str, object], outcome: Outcome, kind: ErrorClass, code: str | None, words: str) -> None:
    got, fault = fault_of(REAPED | said, "j1", "r1")
    assert got is outcome and fault is not None
    assert (fault.error_class, fault.code) == (kind, code or said["code"])
    assert words in fault.message and "'j1'" in fault.message
    assert "/" not in fault.message


def test_who_reads_of_a_failed_job_is_told_how_to_read_what_it_said() -> None:
    _, fault = fault_of(REAPED | {"outcome": "exited", "exit_code": 3}, "count[the harbour.txt]", "quickstart-1")
    assert fault is not None and fault.message.endswith("; its output: stager logs quickstart-1 'count[the harbour.txt]'")


@pytest.mark.parametrize(
    ("printed", "isolation", "is_hinted"),
    [
        ("sh: 1: cannot create /x: Read-only file system\n", "mounts", True),
        ("sh: 1: cannot create /x: Permission denied\n", "mounts+landlock", True),
        ("sh: 1: cannot create /x: Permission denied\n", "mounts", False),
        ("sh: 1: cannot create /x: Read-only file system\n", "none", False),
        ("sh: 1: cannot create /x: Read-only file system\n", "", False),
        ("Read-only file system\n" + "later\n" * 2000, "mounts", False),
        ("a mistake of its own\n", "mounts+landlock", False),
    ],
)
def test_a_job_whose_write_was_refused_is_told_so(tmp_path: Path, printed: str, isolation: str, is_hinted: bool) -> None:
    said = REAPED | {"outcome": "exited", "exit_code": 2}
    outcome, fault = fault_of(said, "j1", "r1")
    (tmp_path / "err").write_text(printed)
    ended = AttemptResult(attempt_id="a", outcome=outcome, fault=fault, isolation=isolation, stderr_path=str(tmp_path / "err"))
    hinted = with_hint(spec(), ended, said).fault
    assert hinted is not None and ("isolate: off" in hinted.message) is is_hinted
    assert with_hint(spec(), ended, said | {"outcome": "signalled"}) == ended


def test_what_was_not_seen_stays_none() -> None:
    assert fault_of(REAPED, "j1", "") == (Outcome.OK, None)
    seen = measures_of(REAPED | {"chars_read": 0, "read_bytes": None}, 5)
    assert (seen.wall_s, seen.chars_read, seen.read_bytes, seen.memory_peak_bytes, seen.copied_bytes) == (1.0, 0, None, None, 5)
    assert measures_of({"outcome": "not_started", "wall_s": 0.0, "cpu_user_s": 0.0}, None) == Measures()


def test_a_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    one = AttemptResult(
        attempt_id="a1",
        outcome=Outcome.FAILED,
        fault=Fault(ErrorClass.CORRUPT, "input_changed", "m", "s"),
        measures=Measures(wall_s=1.5, chars_read=0),
        void_outputs=({"file_id": "f"},),
        undeclared=("x",),
        changed_inputs=(("f", "g"),),
        release_fault=Fault(ErrorClass.TRANSIENT, "io_error", "m"),
    )
    write_json(f"{tmp_path}/o", one.to_json())
    assert AttemptResult.from_json(read_json(f"{tmp_path}/o") or {}) == one
    assert stat.S_IMODE(os.stat(f"{tmp_path}/o").st_mode) == 0o600


def test_what_an_attempt_left_goes_with_its_sandbox_and_nothing_else_does(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("not an attempt's")
    for name, inside in (("released", "attempt.json"), ("not", "sandbox/deep/out")):
        place = Place.of(tmp_path, name)
        path = Path(place.directory, inside)
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        (path.parent / "link").symlink_to(kept)
        place.drop()
        assert not Path(place.directory).exists()
        place.drop()
    led_away = Place.of(tmp_path, "led-away")
    Path(led_away.directory).symlink_to(kept)
    led_away.drop()
    assert (kept / "file").read_text() == "not an attempt's"


def test_a_file_cut_short_counts_as_none(tmp_path: Path) -> None:
    for text in ("", '{"outcome": "exi', "[]"):
        (tmp_path / "r").write_text(text)
        assert read_json(f"{tmp_path}/r") is None
    assert read_json(f"{tmp_path}/missing") is None


@pytest.mark.parametrize("name", ["f\u00fcr", "\udcfc", os.fsdecode(b"a\xff")])
def test_what_is_noted_comes_back_also_where_it_is_no_utf_8(name: str) -> None:
    value = {"argv": [name], "env": {name: name}, "seconds": 1.5, "none": None}
    assert value_of(json_bytes(value)) == json.loads(json.dumps(value)) == value


@given(st.text(min_size=1, max_size=300))
def test_any_job_id_makes_one_plain_name(job_id: str) -> None:
    name = safe_name(job_id)
    assert "/" not in name and "\0" not in name and name not in (".", "..") and not name.startswith(".")
    assert 0 < len(name.encode()) <= NAME_LENGTH_MAX


@given(st.lists(st.text(min_size=1, max_size=250), unique=True, min_size=2, max_size=5))
def test_different_job_ids_have_different_names(job_ids: list[str]) -> None:
    assert len({safe_name(job_id) for job_id in job_ids}) == len(job_ids)


def test_logs_lie_by_run_job_and_number() -> None:
    assert log_paths(Path("/s"), spec(job_id="mProject/7", number=2)) == ("/s/logs/r1/mProject%2F7.2.out", "/s/logs/r1/mProject%2F7.2.err")
    assert log_paths(Path("/s"), spec(job_id="../../x"))[0] == "/s/logs/r1/%2E.%2F..%2Fx.1.out"


def test_a_log_is_put_where_it_is_declared(tmp_path: Path) -> None:
    log, sandbox = tmp_path / "log", tmp_path / "sandbox"
    sandbox.mkdir()
    log.write_bytes(b"said\n" * 100_000)
    put_log(str(log), str(sandbox), "a/b/said.txt")
    assert (sandbox / "a/b/said.txt").read_bytes() == log.read_bytes()
    put_log(str(log), str(sandbox), "a/b/said.txt")
    assert stat.S_IMODE((sandbox / "a/b/said.txt").stat().st_mode) == 0o600


def test_a_job_cannot_lead_its_log_out_of_the_sandbox(tmp_path: Path) -> None:
    log, sandbox, victim = tmp_path / "log", tmp_path / "sandbox", tmp_path / "victim"
    (sandbox / "a").mkdir(parents=True)
    victim.mkdir()
    log.write_text("said")
    (sandbox / "a" / "way").symlink_to(victim)
    with pytest.raises(InvalidInput, match="a/way/said") as caught:
        put_log(str(log), str(sandbox), "a/way/said")
    assert caught.value.code == "output_escapes" and not list(victim.iterdir())

    (victim / "file").write_text("untouched")
    (sandbox / "said").symlink_to(victim / "file")
    put_log(str(log), str(sandbox), "said")
    assert (victim / "file").read_text() == "untouched" and (sandbox / "said").read_text() == "said"

    (sandbox / "directory").mkdir()
    with pytest.raises(InvalidInput):
        put_log(str(log), str(sandbox), "directory")


def test_the_last_line_of_a_log_is_read_whatever_is_before_it(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.truncate(1 << 42)
        log.seek(0, os.SEEK_END)
        log.write(b"\nwhat the reaper said\n")
    assert last_line(str(tmp_path / "log")) == "what the reaper said"
