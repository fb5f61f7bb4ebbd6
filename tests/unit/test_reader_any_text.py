"""Workflows with something else in the place of a word: each is a workflow that can run, or refused in words of our own."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.model.errors import InvalidInput, Refused, StagerError
from stager.model.workflow import Workflow
from stager.readers.native_params import given_values
from stager.readers.sniff import read_workflow
from tests.unit import (
    test_reader_native_lists,
    test_reader_native_params,
    test_reader_native_rows,
    test_reader_native_scatter,
    test_reader_native_when,
    test_reader_pegasus,
    test_reader_wfcommons,
)
from tests.unit.reader_origins import DirectoryAccess

NATIVE = {
    "params": test_reader_native_params.ALL,
    "lists": test_reader_native_lists.ALL,
    "numbers": test_reader_native_rows.NUMBERS,
    "when": test_reader_native_when.TEXT,
    "table": 'include: types.yml\njobs: {a: {foreach: t.tsv, run: "go {a} {b:02d}", type: c, outputs: ["{a}.x"]}}\n',
    "split": test_reader_native_scatter.SPLIT,
    "beside": test_reader_native_scatter.BESIDE,
    "within": test_reader_native_scatter.WITHIN,
    "columns": test_reader_native_scatter.TABLE,
}
TEXTS = {name: f"stager: 1\n{text}" for name, text in NATIVE.items()} | {
    "pegasus": test_reader_pegasus.inline(),
    "split record": json.dumps(
        test_reader_wfcommons.split_instance(test_reader_wfcommons.CHAIN, execution=test_reader_wfcommons.EXECUTION)
    ),
    "flat record": json.dumps(test_reader_wfcommons.FLAT),
}
TREES = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
BESIDE = {"t.tsv": "a\tb\nx\t1\ny\t2\n", "types.yml": "stager: 1\ntypes: {c: {cores: 2}}\nparams: {p: [1, 2]}\n", "raw_1.txt": "x"}
PIECES = re.compile(r"\w+|\s+|.", re.DOTALL)
ODD = """~ null true {} [] [{}] [[]] {a: } 0 -1 +1 1.10 1e999 1_000 .inf .nan 0x1 2024-13-45 1..3 1..0..0 001..10 {a} {a.stem}
    {a:.2f} {x:02d}
    {{a}} {samples} . .. / * ** ? [a-z] [ ] { } ( ' " | > & * ! % @ ` : - , # \\ $ a,b => here: here:* here:/ t.tsv types.yml w.yml
    raw_1.txt
    &b *b << foreach scatter over as expect zip run inputs outputs after when type include params stager jobs file: sftp: s3://b/../c
    https://[h docker: env list 'list of integer' 'list of' default choices separator finish_by +9d""".split()
ODD += [
    "",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\t",
    "\n  ",
    "\n- ",
    ": ",
    '"\\0"',
    '"a\\0b.tsv"',
    "\ufeff",
    "\u2028",
    "\x85",
    "\U0001f600",
    "é",
    "\udcff",
]
ODD += [
    "9" * 20,
    "9" * 400,
    "x" * 300,
    "[" * 70,
    "a: " * 5,
    "!!python/object:os.system x",
    '"\\ud83d\\ude00"',
    '"\\e[2J"',
    "[a, ~]",
    "[1, [2]]",
]
VALUES: list[Any] = [None, True, 0, -1, 1.5, 1e300, 2**70, "", "a", "a\0b"]
VALUES += ["\ud83d\ude00", "..", "{b}", "²", [], {}, [None], [[]], [{}], {"": ""}]
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.sampled_from(ODD)), min_size=1, max_size=4)
# What Python says of its own objects.
PYTHON = re.compile(
    r"NoneType|object (?:is|has)|zip\(\)|unpack|positional|unhashable|not iterable|embedded null|codec can|recursion|int\(\)"
    r"|could not convert|sys\."
)


def changed(text: str, changes: list[tuple[int, int, str]]) -> str:
    pieces = PIECES.findall(text)
    for place, count, odd in changes:
        at = place % (len(pieces) + 1)
        pieces[at : at + count] = [odd]
    return "".join(pieces)


def pruned(tree: Any, changes: list[tuple[int, Any]]) -> str:
    """With these values in the place of parts, as JSON, which YAML reads too."""
    whole = {"": copy.deepcopy(tree)}
    for place, value in changes:
        parts = list(parts_of(whole))
        owner, key = parts[place % len(parts)]
        owner[key] = copy.deepcopy(value)
    return json.dumps(whole[""])


def parts_of(owner: Any) -> Iterator[tuple[Any, Any]]:
    for key in owner if isinstance(owner, dict) else range(len(owner)) if isinstance(owner, list) else ():
        yield owner, key
        yield from parts_of(owner[key])


def can_begin(workflow: Workflow) -> None:
    """No job has anything that a program cannot be given."""
    for job in workflow.jobs.values():
        words = [*job.argv, job.shell, *(word for pair in job.env for word in pair), *job.lfns]
        assert not any("\0" in word for word in words), job.id
        for word in words:
            word.encode()


def told(problem: StagerError) -> None:
    assert isinstance(problem, (InvalidInput, Refused)) and problem.message and not PYTHON.search(problem.message), problem.message
    assert all(line.isprintable() for line in problem.message.split("\n")), problem.message


@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=150)
@given(changes=CHANGES)
def test_any_text_is_a_workflow_or_told(tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int, str]]) -> None:
    place = tmp_path_factory.mktemp("any")
    for other, text in BESIDE.items():
        (place / other).write_text(text)
    (place / "w.yml").write_bytes(changed(TEXTS[name], changes).encode(errors="surrogateescape"))
    try:
        can_begin(read_workflow(place / "w.yml", access=DirectoryAccess(place)))
    except StagerError as problem:
        told(problem)


@pytest.mark.parametrize("name", TREES)
@settings(max_examples=150)
@given(changes=st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(VALUES)), min_size=1, max_size=2))
def test_any_value_makes_a_workflow_or_is_told(tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, Any]]) -> None:
    place = tmp_path_factory.mktemp("tree")
    for other, text in BESIDE.items():
        (place / other).write_text(text)
    (place / "w.yml").write_text(pruned(TREES[name], changes))
    try:
        workflow = read_workflow(place / "w.yml", access=DirectoryAccess(place))
        if not name.endswith("record"):
            can_begin(workflow)
    except StagerError as problem:
        told(problem)


@settings(max_examples=150)
@given(changes=CHANGES, name=st.sampled_from([*BESIDE]))
def test_any_text_beside_a_workflow_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int, str]]
) -> None:
    place = tmp_path_factory.mktemp("beside")
    for other, text in BESIDE.items():
        (place / other).write_bytes((changed(text, changes) if other == name else text).encode(errors="surrogateescape"))
    (place / "w.yml").write_text(TEXTS["table"])
    try:
        can_begin(read_workflow(place / "w.yml", access=DirectoryAccess(place)))
    except StagerError as problem:
        told(problem)


@settings(max_examples=150)
@given(changes=CHANGES, odd=st.lists(st.sampled_from(ODD), max_size=6), is_file=st.booleans())
def test_any_values_of_parameters_are_taken_or_told(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, str]], odd: list[str], is_file: bool
) -> None:
    place = tmp_path_factory.mktemp("values")
    (place / "w.yml").write_text(TEXTS["lists"])
    (place / "p.yml").write_bytes(changed("samples: [a b, 007]\nsizes: [1, 2]\nextra: x,y\n", changes).encode(errors="surrogateescape"))
    pairs = [("extra", "".join(odd)), ("sizes", f"[{','.join(odd)}]")]
    try:
        given = given_values(() if is_file else pairs, place / "p.yml" if is_file else None)
        can_begin(read_workflow(place / "w.yml", access=DirectoryAccess(place), options={"given": given}))
    except StagerError as problem:
        told(problem)
