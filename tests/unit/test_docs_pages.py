"""The docs site: links and lists as MkDocs wants them, and generated pages that leave nothing out. `make lint` builds all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from scripts import docs_pages
from stager.cli.main import stager
from stager.readers.sniff import read_workflow
from tests.testbed.places import PROJECT
from tests.unit.reader_origins import DirectoryAccess

REST = json.loads((PROJECT / "docs/formats/rest.openapi.json").read_text())
WORKFLOW = json.loads((PROJECT / "docs/formats/workflow.schema.json").read_text())
SITE = {
    "docs/a.md": "a.md",
    "docs/how/b.md": "how/b.md",
    "docs/decisions/README.md": "decisions/README.md",
    "NOTES.md": "project/notes.md",
}


def named_outside(label: str, path: str) -> str:
    return f"{label} <{path}>"


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        ("docs/a.md", "see [b](how/b.md#x)", "see [b](how/b.md#x)"),
        ("docs/how/b.md", "[notes](../../NOTES.md#two)", "[notes](../project/notes.md#two)"),
        ("NOTES.md", "[`b`](docs/how/b.md) and [this](#here)", "[`b`](../how/b.md) and [this](#here)"),
        ("NOTES.md", "[all](docs/decisions/)", "[all](../decisions/README.md)"),
        ("docs/how/b.md", "[code](../../stager/cli)", "code <stager/cli>"),
        ("docs/a.md", "[out](https://example.org/x.md)", "[out](https://example.org/x.md)"),
        ("docs/a.md", "`[x](../y.md)`\n```sh\n[x](../y.md)\n```\n[x](../y.md)", "`[x](../y.md)`\n```sh\n[x](../y.md)\n```\nx <y.md>"),
        # A label in backticks, or a link between two spans, with a line that ends in the middle of a span before it.
        ("docs/how/b.md", "[`cli`](../../stager/cli) and `x`", "`cli` <stager/cli> and `x`"),
        ("docs/how/b.md", "`a` or [code](../../stager/cli), `b`", "`a` or code <stager/cli>, `b`"),
        ("docs/how/b.md", "`a\nb` or [code](../../stager/cli), `c`", "`a\nb` or code <stager/cli>, `c`"),
        ("docs/how/b.md", "`` [`x`](../y.md) `` and [code](../../stager/cli)", "`` [`x`](../y.md) `` and code <stager/cli>"),
    ],
)
def test_links(place: str, text: str, expected: str) -> None:
    assert docs_pages.with_links(text, place, SITE, named_outside) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text\n- a\n- b", "text\n\n- a\n- b"),
        ("- a\n  goes on\n- b", "- a\n  goes on\n- b"),
        ("- a\n\n    more\n- b", "- a\n\n    more\n\n- b"),
        ("text\n| a |\n|---|\n| b |", "text\n\n| a |\n|---|\n| b |"),
        ("text\n```\n- a\n| b |\n```", "text\n```\n- a\n| b |\n```"),
        ("# Title\n\ntext", "# Title\n\ntext"),
    ],
)
def test_lists_and_tables_begin_behind_an_empty_line(text: str, expected: str) -> None:
    assert docs_pages.with_blank_lines(text) == expected


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context)
        yield own.command_path, command
        if isinstance(command, click.Group):
            yield from commands(command, own)


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    page = docs_pages.command_page(stager, "stager")
    context = click.Context(stager, info_name="stager")
    every = list(commands(stager, context))
    assert len(every) > 30
    for path, command in every:
        section = re.search(rf"^##+ {re.escape(path)}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        assert section, path
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        missing = [name for each in options for name in each.opts if not re.search(rf"{re.escape(name)}\b", section[1])]
        assert missing == [], path
    assert "stager submit workflow.yml --plan plan.json --detach" in page, "examples are code"


def dead_anchors(page: str) -> set[str]:
    return set(re.findall(r"\]\(#([^)]+)\)", page)) - set(re.findall(r"\{ #(\S+) \}", page))


def test_the_page_of_the_rest_api_has_every_call_and_schema() -> None:
    page = docs_pages.rest_page(REST)
    calls = [(method.upper(), path) for path, each in REST["paths"].items() for method in each]
    assert len(calls) > 30
    assert [call for call in calls if f"### `{call[0]} {call[1]}`" not in page] == []
    assert [name for name in REST["components"]["schemas"] if f"### {name} {{" not in page] == []
    assert dead_anchors(page) <= {"errors"} and "\n## Errors\n" in page
    for path, each in REST["paths"].items():
        for method, call in each.items():
            section = page.split(f"### `{method.upper()} {path}`", 1)[1].split("\n### ", 1)[0]
            assert [status for status in call["responses"] if status not in section] == [], path


def keys_of(schema: Any) -> Iterator[str]:
    yield from schema.get("properties", {})
    for each in schema.get("$defs", {}).values():
        yield from each.get("properties", {})


def test_the_page_of_workflow_files_has_every_key() -> None:
    page = docs_pages.workflow_page(WORKFLOW)
    keys = set(keys_of(WORKFLOW))
    assert len(keys) > 50
    assert {key for key in keys if f"| `{key}`" not in page} == set()
    assert dead_anchors(page) == set()


def test_every_key_of_workflow_files_says_what_it_is() -> None:
    """Editors show it, too."""
    named = {"": WORKFLOW} | WORKFLOW["$defs"]
    silent = [name for name, schema in named.items() if not schema.get("description")]
    silent += [f"{name}.{key}" for name, schema in named.items() for key, value in schema.get("properties", {}).items() if not told(value)]
    assert silent == []


def told(value: Any) -> bool:
    return value.get("description") or WORKFLOW["$defs"].get(value.get("$ref", "").rpartition("/")[2], {}).get("description")


EXAMPLE = re.compile(r"<!-- files: (.*?) -->\n```yaml\n(.*?)```", re.DOTALL)
EXAMPLES = [(page, *found) for page in sorted((PROJECT / "docs/howto").glob("*.md")) for found in EXAMPLE.findall(page.read_text())]


@pytest.mark.parametrize(("page", "names", "text"), EXAMPLES, ids=[page.stem for page, _, _ in EXAMPLES])
def test_workflows_of_how_to_pages_are_read(page: Path, names: str, text: str, tmp_path: Path) -> None:
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "workflow.yml").write_text(text)
    workflow = read_workflow(tmp_path / "workflow.yml", access=DirectoryAccess(tmp_path))
    if page.stem in ("containers", "environments"):
        return
    assert [job.job_type for job in workflow.jobs.values()].count(f"{workflow.name}/count") == 2 or len(workflow.jobs) == 3


def test_pages_about_other_tools_show_a_workflow() -> None:
    assert {page.stem for page, _, _ in EXAMPLES} >= {"from-make", "from-snakemake", "from-nextflow"}
