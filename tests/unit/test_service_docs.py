"""docs/semantics.md names a test for each promise and each cell of the reconcile table: each of them exists."""

from __future__ import annotations

import re

from tests.testbed.places import PROJECT

TESTS = PROJECT / "tests"
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def references(text: str) -> list[tuple[str, str]]:
    """(file or "", test or "") of everything in backquotes that names a test."""
    found = []
    for quoted in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        file, _, test = quoted.partition("::")
        if file.endswith((".py", ".rs")) or file == "…":
            found.append((file, test.partition("[")[0]))
        elif file.startswith("test_"):
            found.append(("", file.partition("[")[0]))
    return found


def test_every_test_that_the_semantics_name_exists() -> None:
    text = (PROJECT / "docs" / "semantics.md").read_text()
    named = references(text)
    assert len(named) > 40
    for file, test in named:
        of_services = list((TESTS / "e2e").glob("test_service*.py"))
        places = of_services if file in ("", "…") else [TESTS / file, TESTS / "e2e" / file, PROJECT / file]
        there = [place for place in places if place.is_file()]
        assert there, f"{file} is no file of tests"
        found = not test or any(f"def {test}(" in place.read_text() or f"fn {test}(" in place.read_text() for place in there)
        assert found, f"there is no test {test} in {file}"


def test_every_row_names_a_test() -> None:
    """Except where the table says that nothing is asked."""
    text = (PROJECT / "docs" / "semantics.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|") and not re.match(r"\|[-| ]+\|$", line)]
    headers = [line for line in rows if line.rstrip().endswith(("| test |", "| tests |"))]
    silent = [line for line in rows if line not in headers and not references(line.rsplit("|", 2)[1])]
    assert [line for line in silent if "(not asked again)" not in line] == []


def test_every_promise_names_a_test() -> None:
    """Each item of the list of promises; what is not promised stands in a section of its own."""
    promises = (PROJECT / "docs" / "semantics.md").read_text().split("\n## Promises\n", 1)[1].split("\n## ", 1)[0]
    items = re.split(r"^- ", promises, flags=re.MULTILINE)[1:]
    assert len(items) > 60
    assert [item.split("\n", 1)[0] for item in items if not references(item.partition("Tests:")[2])] == []
