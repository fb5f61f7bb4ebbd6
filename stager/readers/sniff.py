"""Tells by content what a workflow file is written in, and has it read.

May know: the names of the readers, which are imported when needed. One rule: the file's name decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from stager.model.errors import InvalidInput
from stager.model.workflow import Workflow
from stager.ports import OriginAccess
from stager.readers.lines import nearest, read_text, require_file

YAML_KEY = re.compile(r"^([\"']?)(stager|pegasus|x-pegasus)\1[ \t]*:", re.MULTILINE)
FLOW_KEY = re.compile(r"[{,]\s*[\"']?(stager|pegasus|x-pegasus)[\"']?\s*:")
FLOW_TOKEN = re.compile(r"""\"[^"\\]*(?:\\.[^"\\]*)*\"|'[^']*'|[{}\[\]:]|[^\s{}\[\]:,"'][^\s{}\[\]:,]*""", re.DOTALL)
RECORD_KEYS = ("schemaVersion", "workflow")
FLOW_KEYS = ("stager", "pegasus", "x-pegasus", *RECORD_KEYS)
FIRST_KEY = re.compile(r"^[\"']?([A-Za-z][\w-]*)[\"']?[ \t]*:", re.MULTILINE)


class WorkflowFormat(StrEnum):
    NATIVE = "native"
    PEGASUS = "pegasus"
    WFCOMMONS = "wfcommons"


def sniff(path: Path | str) -> WorkflowFormat:
    """Raises InvalidInput that says what each format begins with."""
    require_file(Path(path), str(path))
    text = read_text(Path(path), str(path))
    if text.lstrip()[:1] == "{":
        word = first_key(text)
        if word in RECORD_KEYS:
            return WorkflowFormat.WFCOMMONS
    else:
        match = YAML_KEY.search(text)
        word = match[2] if match else ""
    if word:
        return WorkflowFormat.NATIVE if word == "stager" else WorkflowFormat.PEGASUS
    first = FIRST_KEY.search(text)
    slip = nearest(first[1], ("stager", "pegasus", "x-pegasus")) if first else ""
    known = "a native one has 'stager: 1', a Pegasus 5 one 'pegasus:', a WfCommons instance is JSON with 'schemaVersion'"
    message = f"{path}: this is no workflow: {known}{slip}"
    raise InvalidInput(message, code="workflow_invalid", subject=str(path))


def first_key(text: str) -> str:
    """Of a text in braces, the first key at its top that tells the format; a job may be called `workflow`."""
    depth, before = 0, ""
    for match in FLOW_TOKEN.finditer(text):
        token = match[0]
        if token == ":" and depth == 1 and before in FLOW_KEYS:
            return before
        depth += (token in ("{", "[")) - (token in ("}", "]"))
        before = token.strip("\"'")
    # A comment may hold anything.
    found = FLOW_KEY.search(text)
    return found[1] if found else ""


def read_workflow(path: Path | str, *, access: OriginAccess | None, options: Mapping[str, Any] | None = None) -> Workflow:
    """A valid, expanded workflow; with access, native and Pegasus ones have size and token of every external file. `options` go to
    the reader that knows them.
    A WfCommons instance is a record: its files are at no origin, so none is asked for."""
    found = sniff(path)
    options = dict(options or {})
    if found is WorkflowFormat.NATIVE:
        from stager.readers import native

        return native.read(path, access=access, **options)
    if found is WorkflowFormat.PEGASUS:
        from stager.readers import pegasus

        return pegasus.read(path, access=access, **options)
    from stager.readers import wfcommons

    return wfcommons.read(path, **options)
