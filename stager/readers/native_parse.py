"""A native workflow's text -> WorkflowSpec: all sections, nothing looked up yet.

May know: forms and the readers of each section. One rule: every section is read whatever was wrong in the one before, so that all
findings come at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stager.model.files import OnExists
from stager.model.workflow import IoHint, OnFailure, Parameter
from stager.ports import ImageAccess
from stager.readers.lines import Findings, Node, Place, nearest
from stager.readers.native_beside import Beside
from stager.readers.native_form import Fields, Form, integer_of
from stager.readers.native_include import Including
from stager.readers.native_jobs import read_defaults, read_jobs, read_types
from stager.readers.native_origins import default_origin, read_origins
from stager.readers.native_params import put_in, read_params, values_of
from stager.readers.native_references import Names
from stager.readers.native_spec import (
    FILE_KEYS,
    FORMAT_VERSION,
    HINT_KEYS,
    JOB_KEYS,
    SHARED_KEYS,
    SOURCE_KEYS,
    TOP_KEYS,
    FileSpec,
    FinalSpec,
    SourceSpec,
    WorkflowSpec,
)
from stager.readers.native_template import Template
from stager.readers.paths import clean_path, escape_wildcards, has_wildcard

SHA256 = re.compile(r"[0-9a-f]{64}")
NAME_LENGTH_MAX = 200
FRACTION_MAX = 1e6
ENGINE = re.compile(r"[a-z][a-z0-9-]{0,40}")


def parse(
    root: Node, findings: Findings, path: Path, given: Mapping[str, Node], beside: Beside, images: ImageAccess | None = None
) -> WorkflowSpec:
    """Raises only on what makes the rest unreadable: no mapping, another version of the format, or a parameter without a value."""
    form = Form(findings)
    form.images = images
    fields, params = opened(root, form, path, given, beside)
    base = path.absolute().parent
    engine = fields.parsed("engine", engine_of, "")
    spec = WorkflowSpec(read_name(fields, path), engine, read_origins(form, fields.get("origins"), base))
    spec.origins.setdefault("here", default_origin(base))
    names, form.origins, spec.images = Names(form, spec.origins), spec.origins, form.pulled
    defaults = read_defaults(form, fields.get("defaults"), names, engine)
    spec.on_exists = fields.choice("on_exists", OnExists, OnExists.FAIL)
    spec.on_failure = fields.choice("on_failure", OnFailure, OnFailure.CONTINUE)
    spec.files = read_files(form, fields.get("files"), names)
    jobs = read_jobs(form, fields.get("jobs"), names, defaults, read_types(form, fields.get("types")), engine)
    spec.jobs = {name: job for name, job in jobs.items() if not job.when}
    spec.left_out = {name: job for name, job in jobs.items() if job.when}
    if spec.left_out and not spec.jobs:
        findings.note(fields.place("jobs"), "jobs", "every job is left out by its 'when', so there is nothing to run")
    elif not spec.jobs and not form.unread:
        what = "inputs: [FILE], outputs: [FILE]" if engine else "run: COMMAND"
        findings.note(fields.place("jobs"), "jobs", f"the workflow has no jobs; write jobs: {{NAME: {{{what}}}}}")
    spec.finals = read_finals(form, fields.get("finals"), names)
    spec.hints = read_hints(form, fields.get("io_hints"), spec)
    read_spill(fields, names, spec)
    if fields.get("notify") is not None:
        # Few name anybody.
        from stager.readers.native_notify import read_targets

        spec.notify = read_targets(form, fields.get("notify"))
    if any(fields.get(name) is not None for name in ("budget", "finish_by", "objective")):
        # Few are bounded.
        from stager.readers.native_bounds import read_bounds

        spec.bounds = read_bounds(fields, engine)
    spec.params, spec.unused_params = params, tuple(each.name for each in params if each.name not in form.used)
    return spec


def opened(root: Node, form: Form, path: Path, given: Mapping[str, Node], beside: Beside) -> tuple[Fields, tuple[Parameter, ...]]:
    """The sections of the file, and the values of its parameters, with which all of them are read."""
    findings = form.findings
    if not form.expect(root, "", "mapping"):
        findings.raise_if_any()
    check_version(root, findings)
    note_misplaced(root, findings)
    form.beside, form.base = beside, path.parent
    Including(root, path, form, beside).run()
    fields = form.fields(root, "", TOP_KEYS)
    count = len(findings.found)
    specs = read_params(form, fields.get("params"))
    # What is not well declared has no value that anything could be read with.
    params = values_of(form, specs, given, fields.place("params")) if len(findings.found) == count else ()
    if len(findings.found) > count:
        findings.raise_if_any()
    form.declared, form.params = specs, put_in(specs, params)
    return fields, params


def note_misplaced(root: Node, findings: Findings) -> None:
    """Refuses keys of jobs at the top: they stand in a job, or under `defaults:` for all of them. Left out of the tree, so that it is told
    once.
    """
    for key, _ in [pair for pair in root.items if pair[0].text in JOB_KEYS and pair[0].text not in TOP_KEYS]:
        shared = ", or under 'defaults:' for all jobs" if key.text in SHARED_KEYS else ""
        findings.note(key.place, key.text, f"{key.text!r} stands in a job (jobs: {{NAME: {{{key.text}: …}}}}){shared}")
    root.items = [pair for pair in root.items if pair[0].text not in JOB_KEYS or pair[0].text in TOP_KEYS]


def check_version(root: Node, findings: Findings) -> None:
    """A newer format is refused by name, before its new keys are called unknown."""
    node = next((value for key, value in root.items if key.text == "stager"), None)
    if node is None:
        findings.note(root.place, "stager", f"the format's version is missing; start the file with stager: {FORMAT_VERSION}")
    elif node.text != str(FORMAT_VERSION):
        findings.note(
            node.place, "stager", f"format {node.text or 'nothing'!r} is not read by this version of stager, which reads {FORMAT_VERSION}"
        )
        findings.raise_if_any()


def read_name(fields: Fields, path: Path) -> str:
    """As written, else what the file is called, else its directory."""
    absolute = path.absolute()
    stem = absolute.name.split(".")[0]
    default = stem if stem != "workflow" else absolute.parent.name
    name = fields.text("name", default) or default or "workflow"
    if len(name) > NAME_LENGTH_MAX or not name.isprintable():
        fields.form.findings.note(fields.place("name"), "name", f"a name has at most {NAME_LENGTH_MAX} printable characters, on one line")
    return name


def engine_of(text: str) -> str:
    if not ENGINE.fullmatch(text):
        raise ValueError(f"{text!r} cannot name an engine; use small letters, digits and -, as in airflow")
    return text


def read_files(form: Form, node: Node | None, names: Names) -> dict[str, FileSpec]:
    files: dict[str, FileSpec] = {}
    for name_node, value in form.pairs(node, "files"):
        key = f"files.{name_node.text}"
        spec = read_file(form, names, name_node, value, key)
        if spec is not None:
            files[spec.name] = spec
    return files


def read_file(form: Form, names: Names, name_node: Node, node: Node, key: str) -> FileSpec | None:
    """`name: origin:path`, or a mapping with `from:`."""
    try:
        name = clean_path(form.bound(name_node.text, name_node, key) or name_node.text)
    except ValueError as error:
        form.findings.note(name_node.place, key, str(error))
        return None
    if node.kind != "mapping":
        sources = read_sources(form, names, node, key, literal=False)
        return FileSpec(name, name_node.place, key, sources) if sources else None
    fields = form.fields(node, key, FILE_KEYS)
    if fields.get("from") is None:
        form.findings.note(node.place, key, "the file comes from nowhere; write from: origin:path")
        return None
    sources = read_sources(form, names, fields.nodes["from"], fields.at("from"), literal=fields.boolean("literal", False))
    if not sources:
        return None
    spec = FileSpec(
        name,
        name_node.place,
        key,
        sources,
        put_at=fields.parsed("as", clean_path, ""),
        size_bytes=fields.size("size"),
        sha256=fields.parsed("sha256", sha256_of, None),
        executable=fields.boolean("executable", False),
    )
    check_set(form, spec, fields)
    return spec


def sha256_of(text: str) -> str:
    if not SHA256.fullmatch(text.lower()):
        raise ValueError("a sha256 is written as 64 hexadecimal digits")
    return text.lower()


def check_set(form: Form, spec: FileSpec, fields: Fields) -> None:
    for name in ("size", "sha256"):
        if spec.is_set and fields.get(name):
            form.findings.note(
                fields.place(name), fields.at(name), f"a pattern or directory names many files, so one {name} cannot fit them; leave it out"
            )
    if spec.put_at and not spec.is_set:
        form.findings.note(
            fields.place("as"), fields.at("as"), "a single file is called by its key; 'as' gives the members of a pattern another directory"
        )
    if spec.is_set and len(spec.sources) > 1:
        form.findings.note(
            fields.place("from"), fields.at("from"), "a pattern or directory has one source; write a second entry, or name each file"
        )


def read_sources(form: Form, names: Names, node: Node, key: str, *, literal: bool) -> tuple[SourceSpec, ...]:
    """One `origin:path`, or a list of them, or of {at:, site:, priority:}."""
    if node.kind == "sequence":
        found = [read_source(form, names, member, at, literal=literal) for member, at in form.members(node, key)]
        if not found:
            form.findings.note(node.place, key, "the list is empty; write from: origin:path")
    else:
        found = [read_source(form, names, node, key, literal=literal)]
    return tuple(source for source in found if source)


def read_source(form: Form, names: Names, node: Node, key: str, *, literal: bool) -> SourceSpec | None:
    place, site, priority = node.place, "", 0
    if node.kind == "mapping":
        fields = form.fields(node, key, SOURCE_KEYS)
        site, priority = fields.text("site"), fields.parsed("priority", lambda text: integer_of(text, 0), 0)
        if fields.get("at") is None:
            form.findings.note(place, key, "the source has no place; write at: origin:path")
            return None
        node, key = fields.nodes["at"], fields.at("at")
    reference = names.reference(node, key, literal=literal)
    if reference is None:
        return None
    if not reference.origin:
        form.findings.note(place, key, f"{reference.source!r} names no origin; write origin:path{names.some_origin(reference.source)}")
        return None
    return SourceSpec(reference, place, key, site, priority)


def read_finals(form: Form, node: Node | None, names: Names) -> list[FinalSpec]:
    """`name or pattern: destination` for outputs that say none themselves."""
    finals = []
    for name_node, value in form.pairs(node, "finals"):
        key = f"finals.{name_node.text}"
        destination = names.destination(value, key)
        glob = has_wildcard(name_node.text)
        written = names.written(name_node.text, name_node, key) if form.params else Template((name_node.text,))
        filled = None if written is None else form.filled(written, name_node, key, escape_wildcards if glob else None)
        if filled is None:
            continue
        try:
            name = clean_path(filled.source)
        except ValueError as error:
            form.findings.note(name_node.place, key, str(error))
            continue
        if destination and glob and not destination.into:
            form.findings.note(
                value.place, key, "a pattern stands for many files; end the destination with '/', so that each keeps its name below it"
            )
        elif destination:
            finals.append(FinalSpec(name, glob, destination, name_node.place, key))
    return finals


def read_hints(form: Form, node: Node | None, spec: WorkflowSpec) -> dict[str, tuple[IoHint, Place, str]]:
    hints = {}
    types = {job.job_type for job in (*spec.jobs.values(), *spec.left_out.values())} | set(form.types)
    for name_node, value in form.pairs(node, "io_hints"):
        name, key = name_node.text, f"io_hints.{name_node.text}"
        fields = form.fields(value, key, HINT_KEYS)
        if name not in types and spec.jobs:
            form.findings.note(name_node.place, key, f"no job is of type {name!r}{nearest(name, types)}")
        fraction = fields.parsed("read_fraction", fraction_of, None)
        hint = IoHint(name, compute_s=fields.duration("compute"), output_bytes=fields.size("output"), read_fraction=fraction)
        hints[name] = (hint, name_node.place, key)
    return hints


def fraction_of(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+(?:[eE]-?[0-9]{1,2})?", text) or float(text) > FRACTION_MAX:
        raise ValueError(f"{text!r} is not a fraction; write a number of 0 or more, 1 for every byte read once")
    return float(text)


def read_spill(fields: Fields, names: Names, spec: WorkflowSpec) -> None:
    """`origin:dir`: intermediates that find no room go below that directory, which becomes an origin of its own."""
    node = fields.get("spill")
    destination = names.destination(node, "spill") if node is not None else None
    if destination is None:
        return
    origin = spec.origins[destination.origin]
    below = destination.path.pieces[0]
    if not below:
        spec.spill_origin = origin.name
        return
    name = f"{origin.name}-spill"
    while name in spec.origins:
        name += "-"
    spec.origins[name] = replace(origin, name=name, url=f"{origin.url.rstrip('/')}/{below}")
    spec.spill_origin = name
