"""Texts of the docs site: reference pages made of what the program itself says, and the repository's pages in the form that MkDocs reads.

May know: click, the OpenAPI document, the schema of workflow files. One rule: functions from values to text; scripts/docs_hooks.py does the
reading and tells MkDocs.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
# Left as they are: fenced blocks, and spans that show a link. Other spans may be the label of a link, or in it. Spans are paired from the
# front: what stands between two of them is text.
CODE = re.compile(r"^ *(```|~~~).*?^ *\1[ ]*$|(?<!`)(`+)(?!`)(?:(?!\n[ \t]*(?:\n|```|~~~)).)+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *(```|~~~)")
ITEM = re.compile(r"^( *)(?:[-*+]|\d+\.) ")
ROW = re.compile(r"^\|")
NOTHING: Mapping[str, Any] = {}


# --- pages of the repository ---------------------------------------------------------------------------------------------------------


def with_links(text: str, place: str, site: Mapping[str, str], outside: Callable[[str, str], str]) -> str:
    """The links of a page that is at `place` in the repository, for the site. `site`: path in the repository -> path in the site, of pages
    and files that the site has. `outside(label, path)`: what stands for a link to any other file of the repository.
    """
    here = posixpath.dirname(site[place]) or "."

    def replaced(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        path, mark, anchor = target.partition("#")
        if not path or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return found[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        known = site.get(wanted) or site.get(f"{wanted}/README.md")
        return f"{image}[{label}]({posixpath.relpath(known, here)}{mark}{anchor})" if known else outside(label, wanted)

    parts, end = [], 0
    for code in CODE.finditer(text):
        if not code[1] and "](" not in code[0]:
            continue
        parts += [LINK.sub(replaced, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(replaced, text[end:])])


def with_blank_lines(text: str) -> str:
    """MkDocs wants an empty line before a list or a table; viewers of repositories do not."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        found = FENCE.match(line)
        if fence or found:
            fence = "" if fence and line.strip() == fence else fence or (found[1] if found else "")
            lines.append(line)
            continue
        item, row = ITEM.match(line), ROW.match(line)
        begins = (item and not ITEM.match(before)) or (row and not ROW.match(before))
        if begins and before.strip() and not (item and in_item(lines)):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def in_item(lines: list[str]) -> bool:
    """Whether the last line goes on in an item of a list: lazily, or set in."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if ITEM.match(line):
            return True
    return False


# --- the command line ----------------------------------------------------------------------------------------------------------------


def command_page(program: click.Group, name: str) -> str:
    context = click.Context(program, info_name=name)
    below = {each: program.get_command(context, each) for each in program.list_commands(context)}
    sections = [part for each, command in below.items() if command for part in command_sections(each, command, context)]
    head = [
        "# Command line",
        "",
        f"This page is made from `{name} --help`, so it has every command and every option of this version.",
        "",
    ]
    return "\n".join([*head, *sections]) + "\n"


def command_sections(name: str, command: click.Command, parent: click.Context, depth: int = 2) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * min(depth, 3)} {context.command_path}"
    yield ""
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"
    yield ""
    yield from help_blocks(command.help or "")
    rows = [record for parameter in command.params if (record := option_row(parameter, context))]
    if rows:
        yield from table(("option", "what it does"), rows)
    yield from help_blocks(command.epilog or "")
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            if found := command.get_command(context, each):
                yield from command_sections(each, found, context, depth + 1)


def option_row(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
    return (f"`{record[0]}`", record[1]) if record else None


def help_blocks(text: str) -> Iterator[str]:
    """Paragraphs of click's help. One that begins with \\b keeps its lines, so it is code below its first line."""
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("\b"):
            first, *rest = block[1:].strip("\n").split("\n")
            yield f"{first}\n\n```sh\n" + "\n".join(line.removeprefix("  ") for line in rest) + "\n```\n"
        elif block:
            yield " ".join(block.split()) + "\n"


# --- the REST API --------------------------------------------------------------------------------------------------------------------


def rest_page(document: Mapping[str, Any]) -> str:
    parts = [
        "# REST API: calls and schemas",
        "",
        "This page is made from the [OpenAPI document](../formats/rest.openapi.json). Tests compare that with the service. [The API's",
        "rules](../formats/rest.md) describe tokens, errors and streams.",
        "",
        "## Errors",
        "",
    ]
    errors = common_errors(document)
    parts += [*table(("status", "what"), sorted(errors.items())), "## Calls", ""]
    parts += [
        part
        for path, calls in document["paths"].items()
        for method, call in calls.items()
        for part in call_parts(path, method, call, errors)
    ]
    parts += ["## Schemas", ""]
    parts += [part for name, schema in sorted(document["components"]["schemas"].items()) for part in schema_parts(name, schema)]
    return "\n".join(parts) + "\n"


def common_errors(document: Mapping[str, Any]) -> dict[str, str]:
    """Status -> what most calls say of it, so that no call has to say it again."""
    said: dict[str, Counter[str]] = {}
    for calls in document["paths"].values():
        for call in calls.values():
            for status, answer in call["responses"].items():
                if status >= "400":
                    said.setdefault(status, Counter())[answer["description"]] += 1
    return {status: count.most_common(1)[0][0] for status, count in said.items()}


def call_parts(path: str, method: str, call: Mapping[str, Any], errors: Mapping[str, str]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}` {{ #{call['operationId'].replace('_', '-')} }}"
    yield ""
    yield call.get("description") or call.get("summary", "")
    yield ""
    rows = [
        (f"`{each['name']}`", each["in"] + (", required" if each.get("required") else ""), shape(each["schema"]), described(each))
        for each in call.get("parameters", ())
    ]
    if rows:
        yield from table(("parameter", "where", "type", "what"), rows)
    body = call.get("requestBody", {}).get("content", {})
    if body:
        yield "Body: " + ", ".join(f"`{kind}`, {shape(content.get('schema', {}))}" for kind, content in body.items())
        yield ""
    usual = [status for status, answer in call["responses"].items() if errors.get(status) == answer["description"]]
    rows = [answer_row(status, answer) for status, answer in call["responses"].items() if status not in usual]
    yield from table(("status", "what", "body"), rows)
    if usual:
        yield f"Errors: {', '.join(usual)} ([what they mean](#errors)).\n"


def answer_row(status: str, answer: Mapping[str, Any]) -> tuple[str, str, str]:
    bodies = [f"`{kind}` {shape(content.get('schema', {}))}".strip() for kind, content in answer.get("content", {}).items()]
    what = answer.get("description", "")
    return status, "done" if what == "Successful Response" else what, ", ".join(bodies)


def schema_parts(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name} {{ #{anchor_of(name)} }}"
    yield ""
    if text := schema.get("description"):
        yield f"{text}\n"
    if "properties" in schema:
        yield from key_table(schema)
    else:
        yield f"{shape(schema)}\n"


# --- the workflow format -------------------------------------------------------------------------------------------------------------


def workflow_page(schema: Mapping[str, Any]) -> str:
    parts = [
        "# Workflow files: keys and types",
        "",
        "This page is made from the [JSON schema](../formats/workflow.schema.json). Tests compare that with the reader. [The native",
        "workflow format](../formats/workflow.md) says what the keys mean, with examples.",
        "",
        "## The whole file",
        "",
        *key_table(schema, schema["$defs"]),
    ]
    for name, each in schema["$defs"].items():
        parts += [f"## {name} {{ #{anchor_of(name)} }}", ""]
        if text := each.get("description"):
            parts += [f"{text}", ""]
        parts += list(key_table(each, schema["$defs"])) if "properties" in each else [f"{shape(each)}", ""]
    return "\n".join(parts) + "\n"


# --- what both schemas share ---------------------------------------------------------------------------------------------------------


def key_table(schema: Mapping[str, Any], shared: Mapping[str, Any] = NOTHING) -> Iterator[str]:
    """`shared`: definitions that speak for keys which say nothing themselves."""
    needed = schema.get("required", ())
    rows = []
    for key, value in schema["properties"].items():
        what = described(value) or described(shared.get(name_of(value), NOTHING))
        rows.append((f"`{key}`" + (" (required)" if key in needed else ""), shape(value), what))
    yield from table(("key", "type", "what"), rows)


def described(value: Mapping[str, Any]) -> str:
    text = str(value.get("description", ""))
    default = f"Default: `{value['default']}`." if value.get("default") not in (None, "", [], {}) else ""
    return " ".join(filter(None, [text.rstrip(".") + "." if text and default else text, default]))


def shape(schema: Mapping[str, Any] | bool) -> str:
    """One line of Markdown that says which values fit."""
    if isinstance(schema, bool):
        return "anything" if schema else "nothing"
    if "$ref" in schema:
        name = name_of(schema)
        return f"[{name}](#{anchor_of(name)})"
    for word in ("oneOf", "anyOf"):
        if word in schema and "properties" not in schema:
            return " or ".join(dict.fromkeys(shape(each) for each in schema[word]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {shape(schema['items'])}" if "items" in schema else "list"
    if kind == "object":
        return object_shape(schema)
    names = kind if isinstance(kind, list) else [kind] if kind else []
    return " or ".join({"null": "nothing"}.get(each, each) for each in names) or "anything"


def object_shape(schema: Mapping[str, Any]) -> str:
    values = schema.get("additionalProperties")
    if keys := schema.get("properties"):
        return "mapping with " + ", ".join(f"`{key}`" for key in keys)
    return f"mapping to {shape(values)}" if values and values is not True else "mapping"


def name_of(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def anchor_of(name: str) -> str:
    return "type-" + name.lower().replace("_", "-")


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
    yield ""
