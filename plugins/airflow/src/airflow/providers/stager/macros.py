"""`macros.stager.input(uri)` and `macros.stager.output(uri)`: a task of any operator is served by templating two strings.

May know: Jinja's context, the files of a try. One rule: they act only where a task is about to run; where a template is only shown they
give the URI.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.stager.files import files_of
from airflow.sdk import get_current_context
from jinja2 import pass_context


@pass_context
def input(context: Any, uri: Any) -> str:  # noqa: A001
    """Where the file is on this machine; waits until it is there."""
    return str(files_of(context).input(uri)) if runs_here(context) else uri_of(uri)


@pass_context
def output(context: Any, uri: Any) -> str:
    """Where the task is to write it; it is handed over when the task has ended well."""
    return str(files_of(context).output(uri)) if runs_here(context) else uri_of(uri)


def runs_here(context: Any) -> bool:
    """In the process of a task that is about to run, not where somebody looks at its templates."""
    try:
        return get_current_context()["ti"] is context.get("ti")
    except RuntimeError:
        return False


def uri_of(file: Any) -> str:
    return str(getattr(file, "uri", file))
