"""What need not run: keys, their comparison, and the decision against a slow reference on drawn workflows."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random

import pytest
from msgspec import structs

from stager.model.errors import InvalidInput
from stager.model.files import Destination, File, FileKind, Location, Source
from stager.model.results import KeptOutput, MadeOutput, Result, SeenAt
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow, graph_of
from stager.planning.job_key import Parts, differences, key_of
from stager.planning.make_plan import make_plan
from stager.planning.residual import residual, widened
from stager.planning.reuse import Known, Reuse, as_far_as, decide, jobs_named
from stager.service.reusing import Remembered, explain_job, reuse_lines, reused_jobs
from stager.service.run_service import check_reused
from tests.sim.drawn import sample_shared, sample_workflow

IN_KEY = {"argv", "shell", "interpreter", "inputs", "outputs", "env", "env_pass", "stdin", "stdout", "stderr"}
NOT_IN_KEY = {
    "id",
    "job_type",
    "after",
    "cores",
    "memory_bytes",
    "memory_limit_bytes",
    "isolate",
    "retries",
    "timeout_s",
    "idempotent",
    "deterministic",
    "compute_s",
    "kept_by",
    "reuse",
}
HOME = Origin("home", OriginKind.SFTP, "sftp://lab/data")
JOB = Job(
    "a",
    "t",
    shell="cat in > out",
    interpreter=("/bin/sh", "-c"),
    inputs=(JobInput("in", "in"),),
    outputs=(JobOutput("out", "out"),),
    env=(("X", "1"),),
    env_pass=("SECRET",),
    stdin="in",
)
FILES = {
    "in": File("in", size_bytes=3, sources=(Source(Location("home", "in"), 3, "t1"),)),
    "out": File("out", destination=Destination(Location("home", "out/out"))),
}
FLOW = Workflow("w", FILES, {"a": JOB}, {"home": HOME})
CONTENTS, PASSED = {"in": "b1"}, {"SECRET": "d1"}


def key(
    job: Job = JOB, files: dict[str, File] | None = None, contents: dict[str, str] = CONTENTS, passed: dict[str, str] = PASSED
) -> Parts:
    return key_of(replace(FLOW, jobs={"a": job}, files=files or FILES), job, contents, passed).parts


def test_each_field_of_a_job_is_said_to_bear_on_what_it_makes_or_not() -> None:
    assert {each.name for each in fields(Job)} == IN_KEY | NOT_IN_KEY and not IN_KEY & NOT_IN_KEY


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        (replace(JOB, shell="cat in >out"), "command"),
        (replace(JOB, interpreter=("bash", "-c")), "shell"),
        (replace(JOB, env=(("X", "2"),)), "variable X"),
        (replace(JOB, stdin=None), "stdin"),
        (replace(JOB, stdout="log"), "stdout"),
        (replace(JOB, inputs=(JobInput("in", "other"),)), "input other"),
        (replace(JOB, outputs=(JobOutput("out", "out", optional=True),)), "output out"),
    ],
)
def test_what_bears_on_what_a_job_makes_is_in_its_key(changed: Job, part: str) -> None:
    assert part in [each.part for each in differences(key(), key(changed))]


def test_content_and_mode_of_inputs_and_the_values_of_variables_are_in_the_key() -> None:
    assert [each.part for each in differences(key(), key(contents={"in": "b2"}))] == ["input in"]
    executable = {**FILES, "in": replace(FILES["in"], executable=True)}
    assert [each.part for each in differences(key(), key(files=executable))] == ["input in"]
    passed = differences(key(), key(passed={"SECRET": "d2"}))
    assert [each.text for each in passed] == ["passed variable SECRET: its value differs"]


def test_names_places_and_limits_are_in_no_key() -> None:
    files = {"in": replace(FILES["in"], sources=(Source(Location("home", "elsewhere"), 3, "t9"),)), "out": File("out")}
    other = replace(
        JOB, id="b", job_type="u", cores=4, memory_bytes=7, retries=9, timeout_s=1.0, after=("z",), deterministic=True, compute_s=3.0
    )
    assert key() == key(other, files)


def test_a_program_is_not_a_text_for_a_shell() -> None:
    program = replace(JOB, shell="", interpreter=(), argv=("/bin/sh", "-c", "cat in > out"))
    assert {each.part for each in differences(key(), key(program))} == {"program", "shell", "command"}


def content(name: str) -> str:
    return f"blake3 of {name}"


def drawn(seed: int) -> tuple[Workflow, Known, set[str]]:
    """A workflow that ran before, of which something changed since: contents, commands, finals, records; some of it is declared
    deterministic.
    """
    random = Random(f"reuse/{seed}")
    flow = sample_workflow(random, "w", sample_shared(random), jobs_max=20)
    jobs = {job.id: replace(job, deterministic=random.random() < 0.3, reuse=random.random() < 0.95) for job in flow.jobs.values()}
    flow = replace(flow, jobs=jobs)
    before = {lfn: content(lfn) for lfn in flow.files}
    results: dict[str, Result] = {}
    for job in flow.jobs.values():
        made = tuple(MadeOutput(output.path, 10, content(output.lfn)) for output in job.outputs)
        digest = key_of(flow, job, before, {}).digest
        if random.random() < 0.9:
            results[digest] = Result(digest, "w-1", job.id, "work", "w", {}, made, 1.0)
    changed = {job_id: replace(job, argv=("new",)) if random.random() < 0.1 else job for job_id, job in flow.jobs.items()}
    flow = replace(flow, jobs=changed)
    contents = {lfn: content(lfn) if random.random() < 0.95 else "other" for lfn, file in flow.files.items() if file.is_external}
    contents = {lfn: told for lfn, told in contents.items() if random.random() < 0.97}
    held = {
        lfn: SeenAt("", lfn, "t", 10, content(lfn) if random.random() < 0.97 else "other", 1.0, "readback")
        for lfn, file in flow.files.items()
        if file.is_final and random.random() < 0.9
    }
    rerun = {job_id for job_id in flow.jobs if random.random() < 0.03}
    kept = {
        (digest, made.path): KeptOutput(f"file of {made.path}", 10, made.blake3 if random.random() < 0.97 else "other")
        for digest, result in results.items()
        for made in result.outputs
        if random.random() < 0.6
    }
    return flow, Known(contents, held, results.get, kept=kept), rerun


def slowly(flow: Workflow, known: Known, rerun: set[str]) -> set[str]:
    """The jobs that run, from the definitions alone, again and again until nothing more follows."""
    graph, runs = graph_of(flow), set(rerun)
    while True:
        contents, before, on_node = dict(known.contents), set(runs), set()
        for job_id in graph.order:
            job = flow.jobs[job_id]
            told = all(entry.lfn in contents for entry in job.inputs)
            digest = key_of(flow, job, contents, {}).digest if told else ""
            result = known.result_of(digest)
            if result is None or not job.reuse or not job.outputs or job_id in rerun:
                runs.add(job_id)
                continue
            made = {output.path: output.blake3 for output in result.outputs}
            for output in job.outputs:
                contents[output.lfn] = made[output.path]
                if (kept := known.kept.get((digest, output.path))) is not None and kept.blake3 == made[output.path]:
                    on_node.add(output.lfn)
        homes = {lfn for lfn, there in known.held.items() if contents.get(lfn) == there.blake3}
        for job_id, job in flow.jobs.items():
            if any(flow.files[output.lfn].is_final and output.lfn not in homes | on_node for output in job.outputs):
                runs.add(job_id)
            # A final is read where it is at home, and nowhere else.
            at_hand = homes | {lfn for lfn in on_node if not flow.files[lfn].is_final}
            if job_id in runs:
                runs |= {graph.producer[entry.lfn] for entry in job.inputs if entry.lfn in graph.producer and entry.lfn not in at_hand}
                runs |= {reader for output in job.outputs for reader in graph.readers[output.lfn] if not job.deterministic}
        if runs == before:
            return runs


def test_the_decision_is_the_slow_reference_and_what_runs_can_have_all_it_reads() -> None:
    reused = lent = 0
    for seed in range(400):
        flow, known, rerun = drawn(seed)
        found = decide(flow, known, rerun)
        assert set(found.runs) == slowly(flow, known, rerun), seed
        assert found.runs.keys() | found.reused.keys() == flow.jobs.keys() and all(found.runs.values())
        graph = graph_of(flow)
        for job_id in found.runs:
            for entry in flow.jobs[job_id].inputs:
                producer = graph.producer.get(entry.lfn)
                assert producer is None or producer in found.runs or entry.lfn in found.held.keys() | found.kept.keys(), seed
        reused, lent = reused + len(found.reused), lent + len(found.lent)
        assert not found.lent.keys() & found.held.keys() and all(flow.files[lfn].is_final for lfn in found.lent)
    assert reused > 500 and lent > 20, "else nothing was tried"


def test_a_plan_of_what_runs_is_widened_to_all_jobs_in_an_order_that_holds() -> None:
    for seed in range(150):
        flow, known, rerun = drawn(seed)
        found = decide(flow, known, rerun)
        part = residual(flow, found)
        plan = widened(make_plan(part, embedded(10_000_000, cores=2)), flow, found, "node0")
        order = {entry.job: entry.order for entry in plan.jobs}
        assert [entry.order for entry in plan.jobs] == list(range(len(flow.jobs))) and order.keys() == flow.jobs.keys()
        for job_id, above in graph_of(flow).parents.items():
            assert all(order[parent] < order[job_id] for parent in above), seed
        assert [entry.lfn for entry in plan.files] == sorted(flow.files)


def test_where_all_is_there_nothing_runs_and_nothing_moves() -> None:
    result = Result(key_of(FLOW, JOB, CONTENTS, PASSED).digest, "w-1", "a", "t", "w", {}, (MadeOutput("out", 5, "o1"),), 1.0)
    held = {"out": SeenAt("", "out/out", "t", 5, "o1", 1.0, "readback")}
    known = Known(CONTENTS, held, {result.key: result}.get, PASSED)
    found = decide(FLOW, known)
    assert found.reused == {"a": result} and found.held == held
    plan = widened(make_plan(residual(FLOW, found), embedded(10_000_000)), FLOW, found, "node0")
    assert (plan.fetch_bytes, plan.upload_bytes, plan.makespan_s, len(plan.jobs)) == (0, 0, 0.0, 1)


def test_a_final_that_a_node_has_goes_to_its_new_place_and_its_job_does_not_run() -> None:
    result = Result(key_of(FLOW, JOB, CONTENTS, PASSED).digest, "w-1", "a", "t", "w", {}, (MadeOutput("out", 5, "o1"),), 1.0)
    kept = KeptOutput("p1", 5, "o1")
    known = Known(CONTENTS, {}, {result.key: result}.get, PASSED, kept={(result.key, "out"): kept})
    found = decide(FLOW, known)
    assert found.reused == {"a": result} and found.lent == {"out": kept} and not found.kept
    plan = widened(make_plan(residual(FLOW, found), embedded(10_000_000)), FLOW, found, "node0")
    assert (plan.fetch_bytes, plan.upload_bytes, plan.makespan_s) == (0, 5, 0.0)
    (job,) = reused_jobs(FLOW, found)
    assert [(output.kept, output.token) for output in job.outputs] == [("p1", "")]
    check_reused(FLOW, (job,))
    remembered = Remembered(found, known)
    assert "1 final (5 B) that earlier runs made is sent to its destination from where a node keeps it" in reuse_lines(
        FLOW, remembered, plan, by_name=False
    )
    assert "  out: sent to its destination from a node that keeps it" in explain_job(FLOW, remembered, "a", "")
    (output,) = job.outputs
    with pytest.raises(InvalidInput, match="not where that is wanted"):
        check_reused(FLOW, (structs.replace(job, outputs=(structs.replace(output, kept=""),)),))


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (Known(CONTENTS, {}, lambda key: None, PASSED), "no run that is remembered made this"),
        (Known({}, {}, lambda key: None, PASSED, {"in": "because"}), "its input 'in' is not known: because"),
        (Known(CONTENTS, {}, lambda key: None), "variable 'SECRET' is not known"),
        (Known(CONTENTS, {}, lambda key: Result(key, "r", "a", "t", "w", {}, (), 1.0), PASSED), "has no 'out'"),
        (
            Known(CONTENTS, {}, lambda key: Result(key, "r", "a", "t", "w", {}, (MadeOutput("out", 1, "o"),), 1.0), PASSED),
            "is not at its destination as it was left there",
        ),
    ],
)
def test_it_is_said_why_a_job_runs(known: Known, why: str) -> None:
    assert why in decide(FLOW, known).runs["a"]


def test_what_an_engine_runs_and_what_has_no_outputs_is_never_reused() -> None:
    known = Known(CONTENTS, {}, lambda key: Result(key, "r", "a", "t", "w", {}, (), 1.0), PASSED)
    assert not decide(replace(FLOW, engine="airflow"), known).reused
    assert "no outputs" in decide(replace(FLOW, jobs={"a": replace(JOB, outputs=())}), known).runs["a"]


def test_a_final_that_is_a_directory_is_made_again() -> None:
    files = {**FILES, "out": replace(FILES["out"], kind=FileKind.DIRECTORY)}
    flow = replace(FLOW, files=files)
    result = Result("k", "w-1", "a", "t", "w", {}, (MadeOutput("out", 5, "o1"),), 1.0)
    found: Reuse = decide(flow, Known(CONTENTS, {}, lambda key: result, PASSED))
    assert not found.reused


def test_jobs_are_named_by_id_type_or_all() -> None:
    assert jobs_named(FLOW, ["a"]) == ({"a"}, []) == jobs_named(FLOW, ["t"]) == jobs_named(FLOW, ["all"])
    assert jobs_named(FLOW, ["x"]) == (set(), ["x"])


def test_as_far_as_keeps_what_is_needed_and_nothing_else() -> None:
    for seed in range(100):
        flow = drawn(seed)[0]
        graph, target = graph_of(flow), sorted(flow.jobs)[-1]
        cut = as_far_as(flow, [target])
        assert target in cut.jobs and cut.until == (target,)
        assert cut.jobs.keys() == {target} | {above for job_id in cut.jobs for above in graph.parents[job_id]}, seed
        assert cut.files.keys() == {lfn for job in cut.jobs.values() for lfn in job.lfns}
        make_plan(cut, embedded(10_000_000))
    assert as_far_as(FLOW, []) is FLOW and as_far_as(FLOW, ["out"]).jobs.keys() == {"a"}
    with pytest.raises(InvalidInput, match="--until 'in'"):
        as_far_as(FLOW, ["in"])
