"""Codes of the I/O node's errors: Python, Rust and the contract have one table of them. Rust's half is in ionode/core/src/error.rs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.model.errors import BY_CLASS, NODE_CODES, NODE_CODES_OF, PERMANENT_CODES, ErrorClass, Fault, is_permanent

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "docs/formats/ionode-api.md"
# Packages that say what a node would, or what became of a call to one.
SPEAK_OF_NODES = ("runtime", "scheduler", "sim", "worker")
CLASS_OF_NAME = {kind.__name__: error_class for error_class, kind in BY_CLASS.items()}


def documented() -> dict[str, tuple[str, str]]:
    """Code: class and whether it is tried again."""
    _, table = CONTRACT.read_text().split("\n| code | class | retry |", 1)
    lines = table.splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[: lines.index("")]]
    assert len({row[0] for row in rows}) == len(rows), "a code stands in two rows"
    return {code.strip("`"): (error_class, retry) for code, error_class, retry, _ in rows}


def test_the_contract_says_of_each_code_what_python_does_with_it() -> None:
    retry = {code: "no" if is_permanent(Fault(of, code, "")) else "yes" for code, of in NODE_CODES.items()}
    assert documented() == {code: (of.value, retry[code]) for code, of in NODE_CODES.items()}


def test_a_code_has_one_class() -> None:
    listed = [code for codes in NODE_CODES_OF.values() for code in codes.split()]
    assert sorted(listed) == sorted(NODE_CODES)
    assert PERMANENT_CODES <= set(NODE_CODES)


def given(tree: ast.AST) -> Iterator[tuple[int, str, ErrorClass]]:
    """Faults and errors that name their code: `Fault(ErrorClass.X, "code", …)` and `Transient(…, code="code")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("Fault"), args=[ast.Attribute(attr=name), ast.Constant(str(code)), *_]):
                yield node.lineno, code, ErrorClass[name]
            case ast.Call(func=ast.Name(name), keywords=keywords) if name in CLASS_OF_NAME:
                for keyword in keywords:
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                        yield node.lineno, str(keyword.value.value), CLASS_OF_NAME[name]


@pytest.mark.parametrize("package", SPEAK_OF_NODES)
def test_a_code_of_the_node_is_given_with_its_class(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {code} is {NODE_CODES[code]} and given as {error_class}"
        for path in sorted((ROOT / "stager" / package).rglob("*.py"))
        for line, code, error_class in given(ast.parse(path.read_text()))
        if NODE_CODES.get(code, error_class) != error_class
    ]
    assert not wrong


def test_a_wrong_class_is_found() -> None:
    source = 'Fault(ErrorClass.CORRUPT, "short_read", "m")\nraise Refused("m", code="draining")'
    assert list(given(ast.parse(source))) == [(1, "short_read", ErrorClass.CORRUPT), (2, "draining", ErrorClass.REFUSED)]
