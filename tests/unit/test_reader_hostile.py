"""A stranger chooses how long names and texts are and how many of them are wrong: reading takes time that grows as the text does.

Times are of the processor, so that a busy machine changes nothing; each was minutes before it was bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stager.model.errors import InvalidInput
from stager.readers.lines import Findings, Node, Place, WorkflowInvalid, closest, compose, nearest
from stager.readers.native_form import Form
from stager.readers.native_lists import Values
from stager.readers.native_params import refuse_secret
from stager.readers.native_shell import compile_shell
from stager.readers.sniff import read_workflow, sniff

MANY = 25_000
SHELLS = {
    "a long word": "a" * 4 * MANY,
    "words that are nearly variables": "a__name_" * MANY,
    "open parameters": "${" * MANY + "x" * MANY,
    "open parameters in quotes": '"${' * MANY + "x" * MANY,
    "open arithmetic": "$((" * MANY + "x" * MANY,
    "open parentheses": "(" * 4 * MANY,
    "here-documents": "<<A " * MANY + "\n" * MANY,
    "braces": "{x" * MANY + "{{y" * MANY,
}
VALUES = {"a long word": "x" * 4 * MANY, "colons": "x://" + ":" * 4 * MANY, "many URLs": "x://" * MANY}


def seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def reading_fails(path: Path) -> WorkflowInvalid:
    with pytest.raises(WorkflowInvalid) as caught:
        read_workflow(path, access=None)
    return caught.value


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_text_is_read_in_one_pass(name: str) -> None:
    def compiled() -> None:
        try:
            compile_shell(SHELLS[name] + "{tile}", ["tile"])
        except ValueError as problem:
            assert "arithmetic" in str(problem)

    assert seconds(compiled) < 2


def test_a_variable_is_known_by_the_end_of_its_word() -> None:
    def parts(text: str) -> list[tuple[str, str]]:
        return [(hole.key, hole.part) for hole in compile_shell(text, ["tile", "t_2"])[1]]

    assert parts("x $tile__stem ${t_2__dir}") == [("tile", "stem"), ("t_2", "dir")]
    assert parts("$tile__stems $tile_stem $Xtile__ __name $other__name") == []
    assert parts("9tile__name _tile__name") == [("tile", "name")], "a key begins with a letter"


def test_a_long_name_is_compared_with_nothing() -> None:
    assert seconds(lambda: nearest("s" * 10_000_000, ["stager", "s" * 10_000_000])) < 1
    assert closest("stagr", ["x" * 10_000_000, "stager"]) == "stager"


@pytest.mark.slow
def test_hints_of_one_reading_have_a_share_of_time_and_the_next_reading_has_its_own() -> None:
    names = [f"name_{number:05d}" for number in range(10_000)]
    Findings("a.yml")
    assert seconds(lambda: [nearest("nome_00001", names) for _ in range(1000)]) < 10
    assert nearest("nome_00001", names) == ""
    Findings("b.yml")
    assert nearest("nome_00001", names) == "; did you mean 'name_00001'?"


@pytest.mark.parametrize("name", VALUES)
def test_a_long_value_is_looked_through_for_passwords_in_one_pass(name: str) -> None:
    assert seconds(lambda: refuse_secret(VALUES[name])) < 1


@pytest.mark.parametrize("text", ["ftp://me:hunter2@h/x", "see S3+ssh://:hunter2@h", "x://y z://me:a:b:c@h"])
def test_a_password_is_found_wherever_it_stands(text: str) -> None:
    with pytest.raises(ValueError, match="a URL with a password in it"):
        refuse_secret(text)


def test_a_first_key_of_ten_megabytes_is_no_workflow(tmp_path: Path) -> None:
    path = tmp_path / "w.yml"
    path.write_text("k" * 10_000_000 + ": 1\n")
    start = time.process_time()
    with pytest.raises(InvalidInput, match="this is no workflow"):
        sniff(path)
    assert time.process_time() - start < 2


@pytest.mark.slow
def test_thousands_of_wrong_names_beside_thousands_of_known_ones(tmp_path: Path) -> None:
    """400 KiB, as a tenant may send."""
    path = tmp_path / "w.yml"
    jobs = [f"  made_by_nobody_{number:05d}: {{run: [a], after: [mode_by_nobody_{number:05d}]}}" for number in range(3000)]
    path.write_text("stager: 1\nname: w\njobs:\n" + "\n".join(jobs) + "\n")
    found: list[str] = []
    assert seconds(lambda: found.append(str(reading_fails(path)))) < 15
    assert "did you mean 'made_by_nobody_00000'?" in found[0]


def test_what_a_finding_shows_of_a_long_key_is_short(tmp_path: Path) -> None:
    path = tmp_path / "w.yml"
    path.write_text("stager: 1\nname: w\n" + "k" * 1_000_000 + ": 1\njobs: {a: {run: [a]}}\n")
    assert len(str(reading_fails(path))) < 2000
    findings = Findings("w.yml")
    findings.note(Place(1, 1), "k" * 1000, "m" * 100_000)
    assert len(str(findings.found[0])) < 30_000


def test_lists_are_looked_for_once_in_what_aliases_repeat() -> None:
    """200 parameters that are lists, beside a value of 100,000 texts."""
    form = Form(Findings("w.yml"))
    form.params = Values({}, {f"v{number}": ("x",) for number in range(200)})
    leaf = compose("[" + ", ".join(["'{v7} {v199} {other}'"] * 1000) + "]", "w.yml")
    many = Node("sequence", Place(), items=[leaf] * 100)
    assert seconds(lambda: form.lists_in([many])) < 3 and form.lists_in([many]) == ["v7", "v199"]
