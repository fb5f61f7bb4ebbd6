"""`@task.stager`: a function whose parameter `files` gives local paths of the task's inlets and outlets.

May know: Airflow's SDK, the operator. One rule: what it does is the operator's; here a function only becomes a task.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow.providers.stager.operators.stage import FILES, StagerOperator
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory


class StagerDecoratedOperator(DecoratedOperator, StagerOperator):
    template_fields: Sequence[str] = StagerOperator.template_fields
    template_fields_renderers = StagerOperator.template_fields_renderers
    custom_operator_name = "@task.stager"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_kwargs: Mapping[str, Any] | None = None,
        op_args: Collection[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        # Airflow asks for a value of each parameter while the file is parsed; this one gets its own when the task runs.
        given = dict(op_kwargs or {})
        if FILES in inspect.signature(python_callable).parameters:
            given[FILES] = None
        said: dict[str, Any] = {"python_callable": python_callable, "op_args": op_args or (), "op_kwargs": given}
        super().__init__(kwargs_to_upstream=said, **said, **kwargs)


def stager_task(python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any) -> TaskDecorator:
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=StagerDecoratedOperator,
        **kwargs,
    )
