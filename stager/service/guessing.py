"""Jobs that need not run if those above them make the same again, as the scheduler is told of them.

May know: the results that are remembered. One rule: as in `planning/guess.py`.
"""

from __future__ import annotations

from stager.model.files import FileKind
from stager.model.workflow import Workflow
from stager.planning.guess import Guess, guess
from stager.planning.plan import GuessedJob, ReusedJob, ReusedOutput
from stager.service.reusing import Remembered


def guessed_jobs(workflow: Workflow, found: Remembered, tenant: str) -> tuple[GuessedJob, ...]:
    """Of those that run."""
    store = found.store
    if store is None or not found.reuse.runs:
        return ()
    guesses = guess(workflow, found.known, found.reuse, found.forced, lambda job_id: store.of_job(tenant, job_id, workflow.name))
    told = (as_told(workflow, found, job_id, each) for job_id, each in guesses.items())
    return tuple(each for each in told if each is not None)


def as_told(workflow: Workflow, found: Remembered, job_id: str, each: Guess) -> GuessedJob | None:
    """None: a final of it would have to be brought first."""
    made, outputs = {output.path: output for output in each.result.outputs}, []
    for output in workflow.jobs[job_id].outputs:
        if (one := made.get(output.path)) is None:
            continue
        facts = (output.lfn, one.size_bytes, one.blake3, one.executable)
        if workflow.files[output.lfn].is_final:
            if output.lfn in found.brought:
                return None
            held = found.known.held[output.lfn]
            outputs.append(ReusedOutput(*facts, held.token, held.verified, held.synced))
            continue
        kept = found.known.kept.get((each.result.key, output.path))
        usable = kept is not None and kept.blake3 == one.blake3 and workflow.files[output.lfn].kind is FileKind.FILE
        outputs.append(ReusedOutput(*facts, kept=kept.file if kept is not None and usable else ""))
    return GuessedJob(ReusedJob(job_id, each.result.run, each.result.key, tuple(outputs)), each.needs)
