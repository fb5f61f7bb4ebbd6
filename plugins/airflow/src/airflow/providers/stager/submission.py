"""A workflow as a task submits it: read once, under a key by which another try finds the run of this one.

May know: what the SDK tells a task of itself, stager's client. One rule: one task instance has one run, until that has succeeded and the
task is cleared, or the workflow is another.

Keys. A try is one of a series: a task that is cleared begins a new series, a retry goes on with the one there is. All tries of a series
submit under one key, so a lost answer, a dead worker or a second worker make no second run. A series that finds the run of an earlier one
unfinished goes on with it, and gives it its own key too: a retry finds it by that once it has succeeded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.stager.waiting import is_stopped, stopped
from pydantic import ValidationError

from stager import rest
from stager.model.errors import InvalidInput, Refused

if TYPE_CHECKING:
    from stager.client import RestClient

RESUMABLE = ("failed", "interrupted", "not_durable", "refused")
SERIES_CHECKED = 20
NAMED_MAX = 100
CANCEL_S = 60.0
# What the operator calls what the REST API calls otherwise.
CALLED = {"format": "workflow_format", "params": "workflow_params"}


@dataclass(frozen=True, slots=True)
class Attempted:
    """`taken`: how this try came to its run: submitted, joined, resumed, or it had succeeded already."""

    run: str
    taken: str


def read_submission(
    workflow: str,
    files: Sequence[str],
    folder: Path,
    *,
    kind: str | None = None,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> rest.Submission:
    """`workflow`: text, or the path of a file, which like `files` is looked for beside the DAG's. Raises OSError, ValueError."""
    beside = {Path(name).name: (folder / name).read_text() for name in files}
    if "\n" in workflow:
        said = {"workflow": workflow}
    else:
        path = folder / workflow
        name = path.name if re.fullmatch(rest.FILE_NAME, path.name) else "workflow.yml"
        said = {"workflow": path.read_text(), "file_name": name}
    try:
        asked = {"files": beside, "format": kind, "params": dict(params or {}), "options": dict(options or {})}
        return rest.Submission.model_validate(said | asked)
    except ValidationError as problem:
        first = problem.errors()[0]
        key, *more = (str(part) for part in first["loc"])
        raise ValueError(f"{'.'.join([CALLED.get(key, key), *more])}: {first['msg']}") from None


def series_of(instance: Any, retries: int) -> int:
    """0 until the task is cleared, then the number of the try before; the SDK reckons its first try so too."""
    return max(0, int(instance.max_tries) - retries)


def key_of(instance: Any, submission: rest.Submission, series: int) -> str:
    """Readable in front, and told apart by all there is behind. Without `env`: a secret that was changed does not make it another run."""
    place = [instance.dag_id, instance.run_id, instance.task_id, str(instance.map_index)]
    content = submission.model_copy(update={"env": {}}).model_dump_json()
    digest = hashlib.sha256("\0".join([*place, str(series), content]).encode()).hexdigest()[:40]
    named = re.sub(r"[^A-Za-z0-9._:/-]", "_", "/".join(place))[:NAMED_MAX]
    return f"airflow/{named}/{digest}"


def attempt(client: RestClient, instance: Any, retries: int, submission: rest.Submission) -> Attempted:
    """Raises StagerError; of a run that somebody cancelled or stopped, Refused."""
    series = series_of(instance, retries)
    for before in earlier(series):
        found = client.run_of_key(key_of(instance, submission, before))
        if found is None:
            continue
        answer = client.run(found).wait(timeout_s=0)
        if answer.state == "cancelling":
            answer = client.run(found).wait_finished(CANCEL_S)
        state = answer.state
        if before == series and answer.finished and is_stopped(state, answer.interrupted_by):
            raise Refused(stopped(found, answer.interrupted_by), code="stopped", subject=found)
        if not answer.finished or state in RESUMABLE:
            # One that is just being stopped too: who waits for it sees that, and goes on with it.
            gone_on = resumed(client, found, submission.env) if answer.finished else Attempted(found, "joined")
            if before != series:
                client.run(found).add_key(key_of(instance, submission, series))
            return gone_on
        if before == series:
            if state == "succeeded":
                return Attempted(found, "succeeded")
            raise Refused(f"run {found} of this task was cancelled; clear the task to submit it anew", code="cancelled", subject=found)
        break
    return Attempted(client.submit(submission, key=key_of(instance, submission, series)), "submitted")


def earlier(series: int) -> Iterator[int]:
    """The newest first."""
    return iter(range(series, max(-1, series - SERIES_CHECKED), -1))


def resumed(client: RestClient, run: str, env: Mapping[str, str]) -> Attempted:
    try:
        client.run(run).resume(env)
    except InvalidInput as problem:
        if problem.code != "not_found":
            raise
        raise Refused(f"run {run} is no longer kept; clear the task to submit it anew", code="not_kept", subject=run) from problem
    return Attempted(run, "resumed")
