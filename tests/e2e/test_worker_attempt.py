"""One attempt from the store to the store, with a real node, a real reaper and real jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stager.model.errors import ErrorClass, StagerError
from stager.model.files import FileKind
from stager.worker import AttemptResult, AttemptSpec, AttemptWaiting, InputAccess, Outcome
from tests.e2e.worker_rig import Rig, attempt, ended, output
from tests.testbed.ionode import IoNode


@pytest.fixture
def rig(ionode: Callable[..., IoNode], short_dir: Path) -> Rig:
    return Rig(ionode(), short_dir / "state", short_dir / "home")


# Large enough to have a file of its own on the node, which a link needs.
PRECIOUS = b"precious\n" * 10_000


def run(rig: Rig, spec: AttemptSpec, **inherited: str) -> AttemptResult:
    async def timeline() -> AttemptResult:
        return await ended(rig.worker(rig.client(), inherited).run(spec))

    return asyncio.run(timeline())


def test_inputs_go_in_and_outputs_come_back(rig: Rig) -> None:
    linked, copied = rig.stored(b"linked\n", "in/linked"), rig.stored(b"copied\n", "in/copied", InputAccess.COPY)
    tool = rig.stored(b"#!/bin/sh\necho from the tool\n", "bin/tool", executable=True)
    made, tree = output("out/made"), output("tree", kind=FileKind.DIRECTORY)
    script = "mkdir -p out tree/sub; cat in/linked in/copied > out/made; bin/tool > tree/sub/member; echo more >> in/copied; echo x > scrap"
    result = run(rig, attempt(script, inputs=(linked, copied, tool), outputs=(made, tree)))
    assert (result.outcome, result.fault, result.exit_code) == (Outcome.OK, None, 0)
    assert [entry["file_id"] for entry in result.outputs] == [made.file_id, tree.file_id]
    assert rig.content(made) == b"linked\ncopied\n" and rig.content(tree, "sub/member") == b"from the tool\n"
    assert (result.undeclared, result.undeclared_count, result.changed_inputs) == (("scrap",), 1, ())
    assert result.measures.wall_s and result.measures.memory_peak_bytes
    # What is small enough to lie in the node's log is copied, also where a link was asked for.
    assert result.measures.copied_bytes == 43
    assert rig.content(copied) == b"copied\n"
    assert rig.leases() == [] and rig.node.get("/v1/state")["reservations"] == []
    assert sorted(entry.name for entry in rig.attempt_dir("a1").iterdir()) == ["attempt.json", "lock", "outcome.json", "result.json"]


def test_a_job_cannot_change_what_it_reads_by_link(rig: Rig) -> None:
    linked = rig.stored(PRECIOUS, "in")
    script = (
        "python3 - <<'END'\nimport errno\n"
        "for mode in ('r+', 'w', 'a'):\n"
        " try: open('in', mode)\n"
        " except OSError as problem: print(errno.errorcode[problem.errno])\n"
        "END\nchmod 777 in; rm -f in; true"
    )
    result = run(rig, attempt(script, inputs=(linked,)), PATH=os.environ["PATH"])
    assert result.outcome is Outcome.OK, result
    refusals = Path(result.stdout_path).read_text().split()
    # Mode bits come before the mount, but do not bind root.
    assert len(refusals) == 3 and set(refusals) <= ({"EROFS"} if os.geteuid() == 0 else {"EROFS", "EACCES"})
    assert rig.content(linked) == PRECIOUS


def test_a_changed_link_fails_the_attempt_as_corrupt(rig: Rig) -> None:
    """Not by the job itself, which cannot; by whoever reaches into the store meanwhile."""
    linked, made = rig.stored(PRECIOUS, "in"), output("made")

    async def timeline() -> AttemptResult:
        os.mkfifo(rig.state_dir / "go")
        running = asyncio.create_task(
            rig.worker(rig.client()).run(attempt(f"cp in made; read x < {rig.state_dir}/go", inputs=(linked,), outputs=(made,)))
        )
        await until(lambda: (rig.attempt_dir("a1") / "sandbox" / "made").exists(), running)
        stored = next(path for path in (rig.node.store / "data").rglob("*") if path.is_file() and path.read_bytes() == PRECIOUS)
        stored.chmod(0o600)
        stored.write_bytes(b"spoiled!\n" * 10_000)
        (rig.state_dir / "go").write_text("x\n")
        return await ended(running)  # type: ignore[arg-type]

    result = asyncio.run(timeline())
    assert result.outcome is Outcome.FAILED and result.fault is not None
    assert (result.fault.error_class, result.fault.code) == (ErrorClass.CORRUPT, "input_changed")
    assert result.changed_inputs == ((linked.file_id, linked.generation),) and "in" in result.fault.message
    assert result.outputs == () and [entry["file_id"] for entry in result.void_outputs] == [made.file_id]


async def until(condition: Callable[[], bool], running: asyncio.Task[object], deadline_s: float = 120.0) -> None:
    end = asyncio.get_running_loop().time() + deadline_s
    while not condition():
        assert not running.done(), running.result()
        assert asyncio.get_running_loop().time() < end, "waited too long"
        await asyncio.sleep(0.01)


def test_missing_outputs_fail_the_attempt_and_are_named(rig: Rig) -> None:
    result = run(
        rig, attempt("echo > here", outputs=(output("here"), output("gone/one"), output("gone/two"), output("maybe", optional=True)))
    )
    assert result.outcome is Outcome.FAILED and result.fault is not None
    assert result.fault.code == "outputs_missing" and "gone/one" in result.fault.message and "gone/two" in result.fault.message
    assert "maybe" not in result.fault.message and not rig.is_stored(output("here"))
    assert not (rig.attempt_dir("a1") / "sandbox").exists() and rig.leases() == []


def test_an_output_that_leads_elsewhere_is_refused(rig: Rig) -> None:
    result = run(rig, attempt("ln -s /etc/passwd made", outputs=(output("made"),)))
    assert result.outcome is Outcome.FAILED and result.fault is not None and result.fault.code == "output_escapes"
    assert not rig.is_stored(output("made"))


def test_a_failed_job_keeps_its_words_and_on_request_its_sandbox(rig: Rig) -> None:
    script = "echo said; echo wrong >&2; echo half > made; exit 3"
    dropped = run(rig, attempt(script, outputs=(output("made"),)))
    kept = run(rig, attempt(script, "a2", number=2, outputs=(output("made", "a2"),), keep_failed_sandbox=True))
    for result in (dropped, kept):
        assert result.outcome is Outcome.FAILED and result.fault is not None and result.exit_code == 3
        assert (result.fault.code, result.outputs) == ("job_failed", ()) and result.fault.message.endswith("stager logs r1 'job one'")
        assert (Path(result.stdout_path).read_text(), Path(result.stderr_path).read_text()) == ("said\n", "wrong\n")
        assert oct(os.stat(result.stderr_path).st_mode & 0o777) == "0o600"
    assert not (rig.attempt_dir("a1") / "sandbox").exists()
    assert (rig.attempt_dir("a2") / "sandbox" / "made").read_text() == "half\n"
    assert rig.leases() == [] and not rig.is_stored(output("made"))


def test_scratch_goes_however_deep_it_is(rig: Rig) -> None:
    script = 'for name in a b; do mkdir -p "$TMPDIR/$(printf "$name/%.0s" $(seq 1200))"; done; echo > made'
    result = run(rig, attempt(script, outputs=(output("made"),)))
    assert result.outcome is Outcome.OK, result
    assert result.undeclared == () and not (rig.attempt_dir("a1") / "sandbox").exists()


def test_a_job_that_has_gone_very_deep_ends_nothing_but_itself(rig: Rig) -> None:
    """As one does that copies a directory into itself. The node looks for what nobody declared, and removes it all."""
    once = 'way=$(printf "d/%.0s" $(seq 1900)); for _ in 1 2 3 4 5; do mkdir -p $way; cd -P $way; done; echo > "$STAGER_TEST_DONE"'
    kinds = (("a1", output("made"), Outcome.OK), ("a2", output("d", "a2", kind=FileKind.DIRECTORY), Outcome.FAILED))
    for name, declared, outcome in kinds:
        made = f"{rig.attempt_dir(name)}/sandbox/made"
        result = run(rig, attempt(once, name, outputs=(declared,), env={"STAGER_TEST_DONE": made}))
        assert result.outcome is outcome, result
        assert not (rig.attempt_dir(name) / "sandbox").exists()
    assert result.fault is not None and result.fault.code == "output_escapes" and "deeper than an output may be" in result.fault.message
    assert rig.leases() == []


def test_captured_output_is_an_output(rig: Rig) -> None:
    given = rig.stored(b"three\none\ntwo\n", "in/lines")
    said, wrong = output("out/said.txt"), output("wrong.txt")
    spec = attempt(
        "sort; echo oops >&2", inputs=(given,), outputs=(said, wrong), stdin="in/lines", stdout="out/said.txt", stderr="wrong.txt"
    )
    result = run(rig, spec)
    assert result.outcome is Outcome.OK, result
    assert rig.content(said) == b"one\nthree\ntwo\n" and rig.content(wrong) == b"oops\n"
    assert Path(result.stdout_path).read_bytes() == b"one\nthree\ntwo\n"


def test_a_large_captured_output_is_whole(rig: Rig) -> None:
    result = run(rig, attempt("seq 1 500000", outputs=(output("said"),), stdout="said", reserve_bytes=1 << 23))
    assert result.outcome is Outcome.OK, result
    assert rig.content(output("said")) == "".join(f"{number}\n" for number in range(1, 500_001)).encode()


def test_outputs_larger_than_reserved_wait_for_space(rig: Rig) -> None:
    spec = attempt("head -c 5000 /dev/zero > made", outputs=(output("made"),), reserve_bytes=100)

    async def timeline() -> AttemptResult:
        worker = rig.worker(rig.client())
        waiting = await worker.run(spec)
        assert waiting == AttemptWaiting("a1", 5000, waiting.measures) and waiting.measures.wall_s
        assert (rig.attempt_dir("a1") / "sandbox" / "made").stat().st_size == 5000 and not rig.is_stored(output("made"))
        again = await worker.commit("a1", 4999)
        assert isinstance(again, AttemptWaiting) and again.needed_bytes == 5000
        result = await ended(worker.commit("a1", 5000))
        assert await worker.commit("a1", 1) == result
        return result

    result = asyncio.run(timeline())
    assert result.outcome is Outcome.OK and len(rig.content(output("made"))) == 5000
    assert rig.node.get("/v1/state")["reservations"] == []


def test_what_waits_can_be_abandoned(rig: Rig) -> None:
    async def timeline() -> AttemptResult:
        worker = rig.worker(rig.client())
        assert isinstance(await worker.run(attempt("echo > made", outputs=(output("made"),), reserve_bytes=0)), AttemptWaiting)
        assert await worker.kill("a1") is False
        return await worker.abandon("a1")

    assert asyncio.run(timeline()).outcome is Outcome.KILLED
    assert not (rig.attempt_dir("a1") / "sandbox").exists() and not rig.is_stored(output("made")) and rig.leases() == []


def test_a_caller_that_looks_after_the_reservation_keeps_it(rig: Rig) -> None:
    rig.node.do("PUT", "/v1/reservations/mine", {"bytes": 1000})
    result = run(rig, attempt("echo > made", outputs=(output("made"),), reserve_bytes=None, reservation_id="mine"))
    assert result.outcome is Outcome.OK, result
    assert rig.node.get("/v1/state")["reservations"] == [{"id": "mine", "bytes": 999}]


@pytest.mark.parametrize(
    ("fields", "kind", "code", "words"),
    [
        ({"argv": ("no-such-tool",)}, ErrorClass.INVALID_INPUT, "program_not_found", "no-such-tool"),
        ({"argv": ("true",), "stdin": "nowhere"}, ErrorClass.INVALID_INPUT, "stdin_unreadable", "nowhere"),
        ({"argv": ("true",), "env": {"A=B": "x"}}, ErrorClass.INVALID_INPUT, "start_failed", "A=B"),
    ],
)
def test_a_job_that_cannot_start_says_why(rig: Rig, fields: dict[str, object], kind: ErrorClass, code: str, words: str) -> None:
    result = run(rig, attempt("", **fields))
    assert result.outcome is Outcome.FAILED and result.fault is not None
    assert (result.fault.error_class, result.fault.code) == (kind, code) and words in result.fault.message
    assert rig.leases() == [] and not (rig.attempt_dir("a1") / "sandbox").exists()


def test_an_input_that_is_not_there_fails_the_attempt(rig: Rig) -> None:
    there = rig.stored(b"x", "there")
    gone = type(there)("f-none", "t-none", "gone")
    result = run(rig, attempt("true", inputs=(there, gone)))
    assert result.outcome is Outcome.FAILED and result.fault is not None and result.fault.code == "replica_unknown"
    assert rig.leases() == [] and not (rig.attempt_dir("a1") / "sandbox").exists()


def test_the_job_gets_a_scratch_directory_that_is_no_output(rig: Rig) -> None:
    result = run(rig, attempt('echo > "$(mktemp)"; mkdir -p "$TMPDIR/a/b"; env | sort', env={"MINE": "a b"}), TZ="UTC")
    assert (result.outcome, result.undeclared_count) == (Outcome.OK, 0)
    sandbox = rig.attempt_dir("a1") / "sandbox"
    said = Path(result.stdout_path).read_text().splitlines()
    expected = ["LANG=C.UTF-8", "MINE=a b", "STAGER_ATTEMPT=a1", "STAGER_JOB=job one", "STAGER_RUN=r1", "TZ=UTC"]
    expected += [f"HOME={sandbox}", f"TMPDIR={sandbox}/.tmp", f"PWD={sandbox}", "PATH=/usr/local/bin:/usr/bin:/bin"]
    assert said == sorted(expected)


def test_a_job_may_work_below_its_sandbox(rig: Rig) -> None:
    given = rig.stored(b"x\n", "data/in")
    result = run(rig, attempt("cp ../data/in made", inputs=(given,), outputs=(output("work/made"),), cwd="work"))
    assert result.outcome is Outcome.OK, result
    assert rig.content(output("work/made")) == b"x\n"


def test_the_directories_that_outputs_go_into_are_there(rig: Rig) -> None:
    made, tree = output("a/b/made"), output("c/tree", kind=FileKind.DIRECTORY)
    result = run(rig, attempt("echo x > a/b/made; mkdir c/tree; echo y > c/tree/member", outputs=(made, tree)))
    assert result.outcome is Outcome.OK, result
    assert rig.content(made) == b"x\n" and rig.content(tree, "member") == b"y\n"


def test_a_timeout_ends_the_job(rig: Rig) -> None:
    result = run(rig, attempt("sleep 1000", timeout_s=0.2))
    assert result.outcome is Outcome.FAILED and result.fault is not None and result.fault.code == "job_timeout"
    assert result.signal == 15 and rig.leases() == []


def test_the_jobs_environment_is_gone_from_disk_when_it_has_ended(rig: Rig) -> None:
    assert run(rig, attempt("exit 1", env={"TOKEN": "hush-hush"}, keep_failed_sandbox=True)).outcome is Outcome.FAILED
    holding = [path for path in rig.state_dir.rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()]
    assert holding == []


def test_the_same_attempt_again_is_not_run_again(rig: Rig) -> None:
    counter = rig.state_dir / "counter"
    spec = attempt(f"echo ran >> {counter}", outputs=())

    async def timeline() -> tuple[AttemptResult, AttemptResult]:
        worker = rig.worker(rig.client())
        first = await ended(worker.run(spec))
        return first, await ended(rig.worker(rig.client()).run(spec))

    first, second = asyncio.run(timeline())
    assert first == second and counter.read_text() == "ran\n"
    assert rig.leases() == [] and not (rig.attempt_dir("a1") / "sandbox").exists()


def test_forgetting_drops_the_attempt_and_keeps_its_logs(rig: Rig) -> None:
    async def timeline() -> AttemptResult:
        worker = rig.worker(rig.client())
        result = await ended(worker.run(attempt("echo said")))
        worker.forget("a1")
        return result

    result = asyncio.run(timeline())
    assert not rig.attempt_dir("a1").exists() and Path(result.stdout_path).read_text() == "said\n"


def test_many_attempts_at_once(rig: Rig) -> None:
    given = rig.stored(b"shared\n", "in")

    async def timeline() -> list[AttemptResult]:
        worker = rig.worker(rig.client())
        specs = [
            attempt("cat in > made; echo $STAGER_ATTEMPT >> made", f"a{i}", inputs=(given,), outputs=(output("made", f"a{i}"),))
            for i in range(20)
        ]
        return await asyncio.gather(*(ended(worker.run(spec)) for spec in specs))

    results = asyncio.run(timeline())
    assert {result.outcome for result in results} == {Outcome.OK}
    assert [rig.content(output("made", f"a{i}")) for i in range(20)] == [f"shared\na{i}\n".encode() for i in range(20)]
    assert rig.leases() == []


def test_a_node_that_cannot_be_asked_is_no_failure_of_the_attempt(rig: Rig) -> None:
    client = rig.client()
    rig.node.kill()

    async def timeline() -> None:
        with pytest.raises(StagerError) as caught:
            await rig.worker(client).run(attempt("true"))
        assert caught.value.code == "connection_lost"

    asyncio.run(timeline())
