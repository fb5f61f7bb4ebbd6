"""`@task.stager`: a function whose parameter `files` gives local paths of the task's inlets and outlets.

May know: Airflow's SDK, the operator. One rule: what it does is the operator's; here a function only becomes a task.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow.providers.stager.operators.stage import FILES, StagerOperator, given_up, staged_call, wait_outside
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory


class StagerDecoratedOperator(DecoratedOperator):
    template_fields: Sequence[str] = StagerOperator.template_fields
    template_fields_renderers = StagerOperator.template_fields_renderers
    operator_extra_links = StagerOperator.operator_extra_links
    custom_operator_name = "@task.stager"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_kwargs: Mapping[str, Any] | None = None,
        op_args: Collection[Any] | None = None,
        more_inputs: Sequence[str] = (),
        more_outputs: Sequence[str] = (),
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        # Airflow asks for a value of each parameter while the file is parsed; this one gets its own when the task runs.
        given = dict(op_kwargs or {})
        if FILES in inspect.signature(python_callable).parameters:
            given[FILES] = None
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=given, **kwargs)
        self.op_args, self.op_kwargs = op_args or (), given
        self.more_inputs, self.more_outputs, self.deferrable = more_inputs, more_outputs, deferrable

    def execute(self, context: Any) -> Any:
        wait_outside(self, context)
        return staged_call(self, context)

    def execute_when_staged(self, context: Any, event: Any = None) -> Any:
        return staged_call(self, context)

    def on_kill(self) -> None:
        given_up()


def stager_task(python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any) -> TaskDecorator:
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=StagerDecoratedOperator,
        **kwargs,
    )
