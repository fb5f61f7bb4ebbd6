"""Stamps when named functions of stager begin and end, in every Python process of one command. The source of `bench_start_up.py`.

The benchmark lays this file as `sitecustomize.py` where Python looks first, so that each process runs it before anything else.
May know: the names in MARKED. One rule: a mark is one line appended to the file that STAGER_BENCH_MARKS names; nothing else changes.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

# What a module defines, by the part of the start that it is. A name that is gone fails the benchmark, which misses its mark.
MARKED = {
    "stager.cli.local_submit": [("submit_here", "command")],
    "stager.readers.sniff": [("read_workflow", "read")],
    "stager.adapters.origin_access": [("IonodeOriginAccess._ask", "ask")],
    "stager.service.prepare": [("plan_of", "plan")],
    "stager.client.socket": [("connect_or_start", "connect"), ("Client.submit", "submit")],
    "stager.client.warm_start": [("WarmStart.__init__", "launch"), ("wait_until_told", "wait")],
    "stager.cli.summary": [("print_summary", "summary")],
    "stager.service.process": [("hold", "hold"), ("make_api", "api")],
    "stager.service.stores": [("open_stores", "stores")],
    "stager.service.replaying": [("replayed", "replay")],
    "stager.service.app": [("opened", "open")],
    "stager.adapters.node_process": [("NodeProcess.contact", "node")],
}


def mark(name: str, edge: str) -> None:
    line = f"{os.getpid()} {name} {edge} {time.time():.6f}\n"
    handle = os.open(os.environ["STAGER_BENCH_MARKS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(handle, line.encode())
    os.close(handle)


def marked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        mark(name, "begin")
        try:
            return function(*given, **named)
        finally:
            mark(name, "end")

    @functools.wraps(function)
    async def awaited(*given: Any, **named: Any) -> Any:
        mark(name, "begin")
        try:
            return await function(*given, **named)
        finally:
            mark(name, "end")

    return awaited if inspect.iscoroutinefunction(function) else called


class Marking(importlib.abc.MetaPathFinder):
    """Wraps the functions right after their module was run, before anybody takes them from it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in MARKED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_wrap(module: ModuleType) -> None:
                run(module)
                wrap(module, MARKED[name])

            spec.loader.exec_module = run_and_wrap  # type: ignore[method-assign]
        return spec


def wrap(module: ModuleType, wanted: list[tuple[str, str]]) -> None:
    for path, name in wanted:
        *owners, last = path.split(".")
        owner: Any = functools.reduce(getattr, owners, module)
        if hasattr(owner, last):
            setattr(owner, last, marked(getattr(owner, last), name))


if "STAGER_BENCH_MARKS" in os.environ:
    mark("python", "begin")
    sys.meta_path.insert(0, Marking())
