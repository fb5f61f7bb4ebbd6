"""Facts of a DAG from Airflow's own objects: the serialized ones of the scheduler, and those of the DAG file in a task's process.

May know: attributes that both have; imports nothing of Airflow. One rule: the same DAG gives the same facts in whichever process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow.providers.stager.graph import DagFact, FileFact, TaskFact

# Template fields of what stages by itself: a serialized operator keeps their names, and not its class.
OWN_FIELDS = frozenset(("more_inputs", "more_outputs"))
MACRO = "macros.stager."


def dag_fact(dag: Any) -> DagFact:
    return DagFact(dag.dag_id, tuple(task_fact(task) for task in dag.tasks))


def task_fact(task: Any) -> TaskFact:
    return TaskFact(
        task_id=task.task_id,
        stages=stages(task),
        inlets=file_facts(task.inlets),
        outlets=file_facts(task.outlets),
        upstream=tuple(sorted(task.upstream_task_ids)),
        many=bool(task.is_mapped) or next(iter(task.iter_mapped_task_groups()), None) is not None,
    )


def stages(task: Any) -> bool:
    """It is one of our operators, or a template of it calls our macros."""
    fields = tuple(task.template_fields)
    return OWN_FIELDS <= set(fields) or any(mentions(MACRO, raw(task, name)) for name in fields)


def raw(task: Any, name: str) -> Any:
    """As it is written. Of a mapped task the fields stand in what it was called with."""
    if not task.is_mapped:
        return getattr(task, name, None)
    partial, expanded = getattr(task, "partial_kwargs", {}), getattr(task, "_get_specified_expand_input", None)
    value = getattr(expanded() if expanded is not None else None, "value", None)
    return [partial.get(name), value.get(name) if isinstance(value, Mapping) else None]


def mentions(word: str, value: Any) -> bool:
    if isinstance(value, str):
        return word in value
    if isinstance(value, Mapping):
        return any(mentions(word, each) for each in value.values())
    return isinstance(value, list | tuple | set) and any(mentions(word, each) for each in value)


def file_facts(assets: Iterable[Any]) -> tuple[FileFact, ...]:
    """Of those that have a URI; aliases and names that stand for assets have none."""
    return tuple(file_fact(asset) for asset in assets if isinstance(getattr(asset, "uri", None), str))


def file_fact(asset: Any) -> FileFact:
    extra = getattr(asset, "extra", None) or {}
    size, sha256 = extra.get("size_bytes"), extra.get("sha256")
    known = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return FileFact(asset.uri, size if known else None, sha256 if isinstance(sha256, str) else "")
