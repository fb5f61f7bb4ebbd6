"""Rules for the pages and papers of the repository, as functions from text to findings. tests/test_tidy.py applies them.

May know: the layout of docs/decisions. One rule: a finding says where, what, and what to do instead.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping

# https://www.apache.org/licenses/LICENSE-2.0.txt, to the byte.
APACHE_2_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


DECISION = re.compile(r"\d{4}-\d\d-\d\d-[a-z0-9-]+\.md")
BESIDE_DECISIONS = frozenset({"README.md", "template.md"})
NAMED = r"\[[^\]]+\]\((?P<{}>[^)]+)\)"
ACCEPTED, IN_PART, SUPERSEDED = "accepted", "accepted, superseded in part", "superseded"
STATUS = {
    ACCEPTED: re.compile(r"accepted"),
    IN_PART: re.compile(r"accepted, superseded in part by " + NAMED.format("one") + r".*"),
    SUPERSEDED: re.compile(r"superseded by " + NAMED.format("one")),
}
LISTED = re.compile(
    r"^- (?P<date>\d{4}-\d\d-\d\d) \[(?P<title>.+?)\]\((?P<name>[^)]+\.md)\), (?P<status>accepted(?:, superseded in part)?|superseded)\. \S"
)

# In a page: `stager/driver.py`, or `stager/driver.py::drive` for what is defined there.
REFERENCE = re.compile(r"`(?P<path>[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+\.(?:py|rs|md|json|toml|txt|sh))(?:::(?P<name>\w+))?`")
DEFINITION = r"^\s*(?:pub(?:\([a-z]+\))? )?(?:async )?(?:def|class|fn|struct|enum|trait|const) {name}\b|^{name}\b.* = "


def licence_findings(text: bytes | None, pyproject: str, where: str) -> Iterator[str]:
    """`text`: of the LICENSE beside that pyproject.toml. A wheel carries only a file below its own pyproject.toml."""
    project = tomllib.loads(pyproject)["project"]
    if project.get("license") != "Apache-2.0" or project.get("license-files") != ["LICENSE"]:
        yield f'{where}: say license = "Apache-2.0" and license-files = ["LICENSE"], or its wheel carries no licence'
    if text is None:
        yield f"{where}: no LICENSE beside it; copy that of the repository's root"
    elif hashlib.sha256(text).hexdigest() != APACHE_2_SHA256:
        yield f"{where}: the LICENSE beside it is not the exact text of Apache-2.0"


def decision_findings(pages: Mapping[str, str]) -> Iterator[str]:
    """Of docs/decisions, by name: the date in the title, a status right below it, and pages that exist where it names some."""
    for name, text in pages.items():
        if name in BESIDE_DECISIONS:
            continue
        if not DECISION.fullmatch(name):
            yield f"{name}: call it YYYY-MM-DD-subject.md"
            continue
        if not text.startswith(f"# {name[:10]} "):
            yield f"{name}: begin with `# {name[:10]} What was decided`"
        status = status_line(text)
        if status_of(text) is None:
            yield f"{name}: {status!r} right below the title is no status; README.md beside it lists the forms"
            continue
        for named in re.findall(r"\]\(([^)]+)\)", status):
            if named not in pages or named in BESIDE_DECISIONS or named == name:
                yield f"{name}: its status names {named}, which is no other decision"


def index_findings(pages: Mapping[str, str], index: str) -> Iterator[str]:
    """Each decision stands in the index once, with its date, its title, its status and what it says."""
    listed = [entry for entry in (LISTED.match(item) for item in items_of(index)) if entry]
    names = [entry["name"] for entry in listed]
    decisions = [name for name in pages if DECISION.fullmatch(name)]
    for name in decisions:
        if names.count(name) != 1:
            yield f"README.md: {name} stands in it {names.count(name)} times; write `- DATE [title]({name}), status. What it says.` once"
    for entry in listed:
        name = entry["name"]
        if name not in decisions:
            yield f"README.md: {name} is no decision"
        elif pages[name].split("\n", 1)[0] != f"# {entry['date']} {entry['title']}":
            yield f"README.md: {name} has another date or title"
        elif status_of(pages[name]) != entry["status"]:
            yield f"README.md: {name} is called {entry['status']}, its own status is {status_line(pages[name])!r}"


def status_line(text: str) -> str:
    """What stands right below the title, wrapped or not; empty where that is no status."""
    below = text.split("\n", 1)[1].strip() if "\n" in text else ""
    paragraph = " ".join(below.split("\n\n", 1)[0].split())
    label = "**Status:** "
    return paragraph.removeprefix(label) if paragraph.startswith(label) else ""


def status_of(text: str) -> str | None:
    return next((status for status, form in STATUS.items() if form.fullmatch(status_line(text))), None)


def items_of(index: str) -> list[str]:
    """Of a list in Markdown, each on one line."""
    items: list[str] = []
    for line in index.splitlines():
        if line.startswith("- "):
            items.append(line)
        elif items and line.startswith("  "):
            items[-1] += f" {line.strip()}"
    return items


def reference_findings(page: str, where: str, sources: Callable[[str], str | None]) -> Iterator[str]:
    """Files that a page names, and what it says is defined in them. `sources`: the text of a path from the root; None: there is none."""
    for found in REFERENCE.finditer(page):
        path, name = found["path"], found["name"]
        text = sources(path)
        if text is None:
            yield f"{where}: there is no {path}"
        elif name and not re.search(DEFINITION.format(name=re.escape(name)), text, re.MULTILINE):
            yield f"{where}: {path} defines no {name}"
