"""How the services of the scheduler process are put together: each gets what it needs and no more, and none sees the whole.

May know: ast, what composes the process. One rule: a finding says where, what, and what to do instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from tests.tidy_rules import imported_modules

# What composes the scheduler process, and who may see each of it whole. A service gets its collaborators one by one.
SEEN_BY = {
    "stager.service.app": frozenset({"stager.service.process"}),
    "stager.service.services": frozenset({"stager.service.app", "stager.service.api", "stager.service.rest"}),
    "stager.service.machine_side": frozenset(
        {"stager.service.app", "stager.service.node_side", "stager.service.services", "stager.service.rest"}
    ),
    "stager.service.node_side": frozenset({"stager.service.app", "stager.service.services", "stager.service.rest"}),
}
COMPOSES = frozenset(SEEN_BY) | frozenset().union(*SEEN_BY.values())
COLLABORATORS_MAX = 9


def service_findings(tree: ast.AST, module: str, is_package: bool = False) -> Iterator[str]:
    """A service that is given the whole scheduler, or what leads to it, needs all of it as far as anybody can tell."""
    for line, name in imported_modules(tree, module, is_package):
        for whole, seen_by in SEEN_BY.items():
            if f"{name}.".startswith(f"{whole}.") and module not in seen_by | {whole}:
                yield f"{module}:{line}: {name} is for composition roots; take the collaborators that are needed as arguments"
    if module in COMPOSES:
        return
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "scheduler":
            yield f"{module}:{node.lineno}: reaches through a scheduler to {node.attr}; take {node.attr} as an argument"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "scheduler":
            yield f"{module}:{node.lineno}: reaches into a scheduler for {node.attr}; take {node.attr} as an argument"
        elif isinstance(node, ast.ClassDef):
            yield from collaborator_findings(node, module, read)


def collaborator_findings(service: ast.ClassDef, module: str, read: Set[str]) -> Iterator[str]:
    """`read`: what is asked for anywhere in its module."""
    methods = [part for part in service.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    begin = next((method for method in methods if method.name == "__init__"), None)
    if begin is None:
        return
    names = [arg.arg for arg in [*begin.args.posonlyargs, *begin.args.args, *begin.args.kwonlyargs]][1:]
    if len(names) > COLLABORATORS_MAX:
        yield f"{module}:{begin.lineno}: {service.name} is given {len(names)} things, at most {COLLABORATORS_MAX}; it is two services"
    kept = {ast.unparse(node) for node in ast.walk(begin) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for name in names:
        if f"self.{name}" in kept and name not in read:
            yield f"{module}:{begin.lineno}: {service.name} keeps {name} and never asks it; leave it out"
