"""What would not have to run if the jobs that have to should make what they made the last time.

May know: the model, keys of jobs, what is to be reused. One rule: a guess decides nothing. It says what the inputs of a job have to be for
an earlier result to stand for it, and that is found out while the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from stager.model.results import Result
from stager.model.scatter import standing_jobs
from stager.model.workflow import Job, Workflow, graph_of
from stager.planning.job_key import key_of, unknown_variable
from stager.planning.reuse import Known, Reuse


@dataclass(frozen=True, slots=True)
class Guess:
    """`needs`: by lfn, the BLAKE3 that inputs have to come out with which are made anew."""

    result: Result
    needs: dict[str, str]


def guess(
    workflow: Workflow, known: Known, found: Reuse, forced: Collection[str], before: Callable[[str], Result | None]
) -> dict[str, Guess]:
    """By job, of those that run. `before`: what a job made the last time, whatever of."""
    graph, guessed, contents = graph_of(workflow), dict[str, Guess](), dict(found.contents)
    standing = standing_jobs(workflow.scatters)
    for job_id in graph.order if found.runs and not workflow.engine else ():
        if job_id in found.reused:
            continue
        job = workflow.jobs[job_id]
        result = result_for(workflow, job, contents, known)
        needs = {
            entry.lfn: contents[entry.lfn] for entry in job.inputs if result is not None and graph.producer.get(entry.lfn) in found.runs
        }
        unsure = needs or job_id in standing
        if result is not None and unsure and job.reuse and job_id not in forced and is_home(workflow, job, result, known):
            guessed[job_id] = Guess(result, needs)
        if any(graph.readers[output.lfn] for output in job.outputs):
            last = result or before(job_id)
            made = {output.path: output.blake3 for output in last.outputs} if last is not None else {}
            contents |= {output.lfn: made[output.path] for output in job.outputs if output.path in made}
    return guessed


def result_for(workflow: Workflow, job: Job, contents: dict[str, str], known: Known) -> Result | None:
    """What an earlier run made of inputs with these contents, all of it."""
    if not job.outputs or not all(entry.lfn in contents for entry in job.inputs) or unknown_variable(job, known.passed) is not None:
        return None
    result = known.result_of(key_of(workflow, job, contents, known.passed).digest)
    paths = {output.path for output in result.outputs} if result is not None else set()
    return result if all(output.optional or output.path in paths for output in job.outputs) else None


def is_home(workflow: Workflow, job: Job, result: Result, known: Known) -> bool:
    """Each of its finals lies at its destination as that run made it."""
    made = {output.path: output.blake3 for output in result.outputs}
    finals = [output for output in job.outputs if workflow.files[output.lfn].is_final and output.path in made]
    return all((there := known.held.get(output.lfn)) is not None and there.blake3 == made[output.path] for output in finals)
