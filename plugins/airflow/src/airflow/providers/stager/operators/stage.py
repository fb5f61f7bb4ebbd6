"""Tasks in Python whose files are staged: local paths of what they read, and of where to write.

May know: Airflow's SDK, the files of a try. One rule: a task has succeeded only if what it made was handed over.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow.providers.stager import service
from airflow.providers.stager.facts import file_facts
from airflow.providers.stager.files import OPEN, TaskFiles, files_of
from airflow.providers.stager.graph import scheme_of
from airflow.providers.stager.links.stager import StagerRunLink, tell_run
from airflow.providers.stager.watch import Watch
from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

FILES = "files"


class StagerOperator(BaseOperator):
    """Calls a function with `files`, which gives local paths: `files[asset]`, `files["sftp://lab/raw.fits"]`. All inlets and outlets that
    are files are staged; `more_inputs` and `more_outputs` are URIs that are known only when the task runs (templated, mapped).
    `deferrable`: it waits for its inputs without a worker's slot.
    """

    template_fields: Sequence[str] = ("op_args", "op_kwargs", "more_inputs", "more_outputs")
    template_fields_renderers = {"op_args": "py", "op_kwargs": "py"}
    shallow_copy_attrs: Sequence[str] = ("python_callable",)
    operator_extra_links = (StagerRunLink(),)

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] = (),
        op_kwargs: Mapping[str, Any] | None = None,
        more_inputs: Sequence[str] = (),
        more_outputs: Sequence[str] = (),
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.python_callable, self.op_args, self.op_kwargs = python_callable, op_args, op_kwargs or {}
        self.more_inputs, self.more_outputs = more_inputs, more_outputs

    def execute(self, context: Any) -> Any:
        """Gives the worker's slot back until the inputs are there, but not while a service that is away is waited for to take its call."""
        if self.deferrable is None:
            self.deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        calls = files_of(context).calls
        calls.tell = telling(context)
        waiting = calls.begin() if self.deferrable else []
        if waiting:
            from airflow.providers.stager.triggers.staged import StagerStagedTrigger

            self.log.info("waiting for the inlets of this task in the triggerer, at most %.0f s", service.stage_timeout_s())
            limits = service.stage_timeout_s(), service.away_timeout_s()
            trigger = StagerStagedTrigger(waiting, service.conn_id(), *limits, calls.awaited)
            self.defer(trigger=trigger, method_name="execute_when_staged")
        return self.execute_when_staged(context)

    def execute_when_staged(self, context: Any, event: Any = None) -> Any:
        """The function between stage-in and hand-over. It is told of the files, and of what else of the context it names."""
        files = files_of(context)
        files.calls.watch = Watch()
        files.calls.tell = files.calls.tell or telling(context)
        try:
            files.stage(uris(self.inlets, self.more_inputs), uris(self.outlets, self.more_outputs))
            given = {**context, **self.op_kwargs, FILES: files}
            result = self.python_callable(*self.op_args, **wanted(self.python_callable, len(self.op_args), given))
            files.finish()
        except BaseException as problem:
            files.fail(f"{type(problem).__name__}: {problem}")
            raise
        return result

    def on_kill(self) -> None:
        """Gives back what it was given: where it is now it fails, as by any other error."""
        if OPEN:
            raise AirflowException("Airflow ended this task")


def telling(context: Any) -> Callable[[str, str], None]:
    """Of the job in the dashboard of the service, as soon as that has been called."""
    return lambda run, job: tell_run(context, run, service.address().job_page(run, job))


def uris(assets: Collection[Any], more: Sequence[str]) -> list[str]:
    """A URI with no scheme of ours is no file, and stays what it was: something that Airflow knows of."""
    return [uri for uri in (*(fact.uri for fact in file_facts(assets)), *more) if scheme_of(uri) or uri in more]


def wanted(function: Callable[..., Any], positional: int, given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = list(inspect.signature(function).parameters.values())
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return dict(given)
    return {each.name: given[each.name] for each in parameters[positional:] if each.name in given}


__all__ = ["StagerOperator", "TaskFiles"]
