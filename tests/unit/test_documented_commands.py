"""Every command of `stager` and `stager-ionode`, and every make target, that a page names is one that there is, with its options.

The pages are read as a user reads them: code between backticks, and code blocks of shells. Decisions and the changelog tell of the past,
so nothing in them is checked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stager.cli.main import stager as program
from tests.testbed.places import PROJECT

PAGES = sorted(
    path
    for path in (*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("plugins/*/*.md"), *PROJECT.glob("workflows/**/*.md"))
    if path.name != "CHANGELOG.md" and "decisions" not in path.parts
)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
BLOCK = re.compile(r"^```(?:sh|bash|shell|console|text|)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"--[a-z][a-z0-9-]*")
COMMAND_ENDS = re.compile(r"\s(?:#|\||&&|;|>|<)(?:\s|$)")


def spoken(text: str) -> Iterator[str]:
    """Lines of code: spans, and the lines of blocks, those that go on behind a backslash joined."""
    for block in BLOCK.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from SPAN.findall(BLOCK.sub("", text))


def calls_of(text: str, name: str) -> Iterator[list[str]]:
    """Words behind the program's name, up to where the shell ends the command."""
    for line in spoken(text):
        found = re.match(rf"\s*(?:\$ )?(?:[A-Z_]+=\S* )*(?:uv run |python -m )?{name}\s+(.*)", line)
        if found:
            words = COMMAND_ENDS.split(found[1])[0]
            try:
                yield shlex.split(words)
            except ValueError:
                yield words.split()


def problem_of(words: list[str]) -> str | None:
    """None: there is such a command, and it has these options."""
    command: click.Command = program
    context = click.Context(program, info_name="stager")
    path = ["stager"]
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        below = command.get_command(context, words[0])
        if below is None:
            return f"there is no command '{' '.join([*path, words[0]])}'"
        command, path, words = below, [*path, words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help", "--version"}
    unknown = [word for word in OPTION.findall(" ".join(words)) if word not in known]
    return f"'{' '.join(path)}' has no option {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_commands_that_a_page_names_exist(page: Path) -> None:
    told = [(words, problem_of(words)) for words in calls_of(page.read_text(), "stager")]
    assert [f"stager {' '.join(words)}: {problem}" for words, problem in told if problem] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z%-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    benchmarks = {path.stem.replace("_", "-") for path in (PROJECT / "benchmarks").glob("bench_*.py")}
    assert "bench-%" in targets, "each benchmark is a target"
    named = {words[0] for words in calls_of(page.read_text(), "make") if words and re.fullmatch(r"[a-z-]+", words[0])}
    assert named <= targets | benchmarks


def test_pages_are_read_as_a_user_reads_them() -> None:
    page = "`stager submit a.yml`\n```sh\n$ A=b stager plan x.yml \\\n  --json | less --chop\nstager jobs # --all\n```\n`not stager at all`"
    assert list(calls_of(page, "stager")) == [["plan", "x.yml", "--json"], ["jobs"], ["submit", "a.yml"]]
    assert sum(len(list(calls_of(path.read_text(), "stager"))) for path in PAGES) > 50


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("submit workflow.yml --json", None),
        ("token create --tenant NAME --scope submit", None),
        ("submit --no-such", "'stager submit' has no option --no-such"),
        ("token make", "there is no command 'stager token make'"),
        ("swim", "there is no command 'stager swim'"),
        ("--version", None),
    ],
)
def test_what_there_is_not_is_said(words: str, problem: str | None) -> None:
    assert problem_of(words.split()) == problem
