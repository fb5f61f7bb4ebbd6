"""A workflow of stager as one task: submitted, waited for, and ended with it.

May know: Airflow's SDK, the hook, the link, submission.py, waiting.py. One rule: while the run goes on the task needs no worker, and no
death of a worker, triggerer or service makes a second run of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow.providers.stager.hooks.stager import StagerHook
from airflow.providers.stager.links.stager import RUN_KEY, StagerRunLink, note_page, tell_run
from airflow.providers.stager.waiting import BY_AIRFLOW, SharedClient, back, ended, is_stopped, shared_client, stopped
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout

from stager.model.errors import SERVICE_AWAY_CODES, Denied, InvalidInput, StagerError, Transient

if TYPE_CHECKING:
    from airflow.providers.stager.submission import Attempted
    from airflow.sdk import Context

    from stager.client import RestClient

RESUMES_MAX = 5
Value = str | int | float | bool
JOBS_NAMED = 5
LOG_BYTES, LOG_LINES = 4096, 30


class StagerSubmitOperator(BaseOperator):
    """Submits a workflow and waits until it has ended. Returns its summary; XCom `stager_run` holds the run's id as soon as there is one.

    `workflow`: the path of a workflow file beside the DAG's, or the text of one (then templated). `files`: catalogs of a Pegasus workflow,
    as paths. `workflow_format`, `options`: as in docs/formats/rest.md. `workflow_params`: values of its parameters; templated. Airflow has
    `params` of its own, which are another thing. `env`: values for the variables that its jobs name in `env_pass`;
    templated, and not shown among the rendered fields. `when_killed`: a task that is ended, or is out of its `execution_timeout`, stops
    its run (what it made is kept, and the task goes on with it when it is cleared), cancels it for good, or leaves it alone.
    `patience_s`: how long a service that is away is waited for.
    """

    template_fields = ("workflow", "files", "workflow_params", "options", "stager_conn_id")
    template_fields_renderers = {"workflow": "yaml", "workflow_params": "json", "options": "json"}
    operator_extra_links = (StagerRunLink(),)
    ui_color = "#e3f0ea"

    def __init__(
        self,
        *,
        workflow: str,
        files: Sequence[str] = (),
        workflow_format: Literal["native", "pegasus", "wfcommons"] | None = None,
        workflow_params: Mapping[str, Value | Sequence[Value]] | None = None,
        options: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        stager_conn_id: str = StagerHook.default_conn_name,
        deferrable: bool = True,
        when_killed: Literal["stop", "cancel", "leave"] = "stop",
        patience_s: float = 6 * 3600.0,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.workflow, self.files, self.workflow_format = workflow, files, workflow_format
        self.workflow_params, self.options, self.env = workflow_params or {}, options or {}, env or {}
        self.stager_conn_id, self.deferrable = stager_conn_id, deferrable
        self.when_killed, self.patience_s = when_killed, patience_s
        self.run, self.killed = "", False
        if when_killed not in ("stop", "cancel", "leave"):
            raise ValueError(f"when_killed: {when_killed!r} is none of stop, cancel, leave")

    def execute(self, context: Context) -> dict[str, Any]:
        return self._submit(context, self.patience_s)

    def service_back(self, context: Context, event: dict[str, Any], left_s: float) -> dict[str, Any]:
        """It answers again, or was waited for long enough; then this says so by asking once more."""
        return self._submit(context, left_s - event.get("waited_s", 0.0))

    def _submit(self, context: Context, left_s: float) -> dict[str, Any]:
        hook = StagerHook(self.stager_conn_id)
        made = self._made(context, hook, left_s)
        self.run = made.run
        page = hook.address().run_page(made.run)
        self.log.info("run %s %s: %s", made.run, made.taken, page)
        tell_run(context, made.run, page)
        if self.killed:
            # While it was submitted, when there was nothing yet to stop.
            self.on_kill()
            raise AirflowException(f"this task was ended while it submitted run {made.run}")
        return self._wait(context, made.run, 0)

    def _made(self, context: Context, hook: StagerHook, left_s: float) -> Attempted:
        """For so long a service that is away is waited for, however often it comes and goes. Its own word is no reason to wait."""
        from airflow.providers.stager.submission import attempt

        submission, end = self._submission(context), time.monotonic() + left_s
        name = "its workflow" if "\n" in self.workflow else self.workflow
        while True:
            self.log.info("submitting %s to the service at %s", name, hook.address().server)
            try:
                with hook.get_conn() as client:
                    return attempt(client, context["ti"], self.retries or 0, submission)
            except StagerError as problem:
                if problem.code not in SERVICE_AWAY_CODES:
                    fail(problem, self.stager_conn_id)
                self._wait_for_service(problem, end - time.monotonic())

    def _wait_for_service(self, problem: StagerError, left_s: float) -> None:
        """Nothing was submitted, or nobody said that it was: asking again, under the same key, mends both."""
        if left_s <= 0 or self.killed:
            fail(problem, self.stager_conn_id)
        self.log.warning("%s; this task submits when it is back, and waits for that at most %.0f s more", problem.message, left_s)
        if self.deferrable:
            from airflow.providers.stager.triggers.stager import StagerServiceTrigger

            trigger = StagerServiceTrigger(self.stager_conn_id, left_s)
            self.defer(trigger=trigger, method_name="service_back", kwargs={"left_s": left_s}, timeout=self.execution_timeout)
        self._waited_here(lambda line: back(line, left_s))

    def _submission(self, context: Context) -> Any:
        from airflow.providers.stager.submission import read_submission

        folder = Path(self.dag.folder)
        env = {name: str(value) for name, value in self.render_template(dict(self.env), context).items()}
        try:
            kind, params, options = self.workflow_format, self.workflow_params, self.options
            read = read_submission(self.workflow, self.files, folder, kind=kind, params=params, options=options)
            return read.model_copy(update={"env": env})
        except (OSError, ValueError) as problem:
            raise AirflowFailException(f"the workflow of this task cannot be read: {problem}") from None

    def _wait(self, context: Context, run: str, resumes: int) -> dict[str, Any]:
        if self.deferrable:
            from airflow.providers.stager.triggers.stager import StagerRunTrigger

            trigger = StagerRunTrigger(run, self.stager_conn_id, self.when_killed, self.patience_s)
            self.defer(trigger=trigger, method_name="run_ended", kwargs={"resumes": resumes}, timeout=self.execution_timeout)
        return self.run_ended(context, self._waited_here(lambda line: ended(line, run, self.patience_s)), resumes)

    def _waited_here(self, waiting: Callable[[SharedClient], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Without a triggerer: the same waiting, in the worker's slot."""
        address = StagerHook(self.stager_conn_id).address()

        async def wait() -> dict[str, Any]:
            async with shared_client(address) as line:
                return await waiting(line)

        return asyncio.run(wait())

    def run_ended(self, context: Context, event: dict[str, Any], resumes: int = 0) -> dict[str, Any]:
        run = self.run = event["run"]
        self._note_link(context, run)
        if event.get("error"):
            raise AirflowException(f"run {run} cannot be waited for: {event['error']}")
        state, again = event["state"], False
        if not self.killed and is_stopped(state, event.get("by", "")):
            raise AirflowFailException(stopped(run, event["by"]))
        try:
            with StagerHook(self.stager_conn_id).get_conn() as client:
                if state == "succeeded":
                    return client.run(run).summary().model_dump(mode="json")
                if state == "interrupted" and not self.killed and resumes < RESUMES_MAX:
                    # The service was ended and is back, most likely.
                    self.log.warning("run %s was interrupted and is resumed (%d of %d)", run, resumes + 1, RESUMES_MAX)
                    again = True
                    client.run(run).resume(self._submission(context).env)
                else:
                    # Somebody meant it: not even a retry asks again.
                    kind = AirflowFailException if state == "cancelled" else AirflowException
                    raise kind(timeline(client, run, event))
        except Transient as problem:
            if not again and state != "succeeded":
                raise AirflowException(f"run {run} is {state}; {problem.message}") from problem
            self.log.warning("%s", problem.message)
        except StagerError as problem:
            fail(problem, self.stager_conn_id)
        return self._wait(context, run, resumes + 1)

    def _note_link(self, context: Context, run: str) -> None:
        """Airflow asks the process that ends the task, which may be another one than told of the run."""
        if "ti" in context:
            note_page(context["ti"], StagerHook(self.stager_conn_id).address().run_page(run))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            # Airflow tells nobody that a trigger ran out of time.
            self.run = context["ti"].xcom_pull(task_ids=self.task_id, key=RUN_KEY, map_indexes=context["ti"].map_index) or ""
            self.on_kill()
            if self.run:
                self._note_link(context, self.run)
            raise

    def on_kill(self) -> None:
        self.killed = True
        if not self.run or self.when_killed == "leave":
            return
        try:
            with StagerHook(self.stager_conn_id).get_conn() as client:
                run = client.run(self.run)
                run.cancel() if self.when_killed == "cancel" else run.stop(BY_AIRFLOW)
        except StagerError as problem:
            self.log.warning("run %s goes on: %s", self.run, problem.message)


def fail(problem: StagerError, conn_id: str) -> NoReturn:
    """Does not try again a failure that only a person can mend. Where our client was then tells nobody anything."""
    of_connection = isinstance(problem, Denied | Transient)
    kind = AirflowFailException if isinstance(problem, InvalidInput) or problem.code in ("cancelled", "stopped") else AirflowException
    raise kind(f"{problem.message} (connection {conn_id!r})" if of_connection else problem.message) from None


def timeline(client: RestClient, run: str, event: dict[str, Any]) -> str:
    """The run, its failed jobs with the last that they wrote, and what shows more."""
    failed = client.run(run).jobs(state="failed", limit=JOBS_NAMED)
    lines = [f"run {run} is {event['state']}" + (f": {event['message']}" if event["message"] else "")]
    for each in failed:
        lines.append(f"  job {each.job}: " + (each.fault.message if each.fault else f"exit code {each.exit_code}"))
        lines += [f"    {line}" for line in last_words(client, run, each.job)]
    asked = f"stager logs {run} {failed[0].job}" if failed else f"stager status {run}"
    return "\n".join([*lines, f"more: {asked} --server {client.server}"])


def last_words(client: RestClient, run: str, job: str) -> list[str]:
    """The end of what the last try of this job wrote to stderr, else to stdout. Where that cannot be had, the rest is told all the same."""
    try:
        logs = client.run(run).logs(job, tail_bytes=LOG_BYTES).logs
    except StagerError as problem:
        return [f"what it wrote cannot be shown: {problem.message}"]
    written = [log for log in logs if log.attempt == logs[-1].attempt and log.text.strip()]
    if not written:
        return ["it wrote nothing to stderr or stdout"]
    # In the order of the service stdout comes before stderr.
    last = written[-1]
    lines = last.text.splitlines()[-LOG_LINES:]
    return [f"the end of its {last.stream}, attempt {last.attempt}:", *(f"| {line}" for line in lines)]
