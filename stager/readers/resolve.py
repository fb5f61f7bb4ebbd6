"""Asks origins for the size and token of every external file, before anything is planned.

May know: model, the OriginAccess port. One rule: all that is missing is said at once, with origin and path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from stager.model.errors import ORIGIN_CODES, ErrorClass, Fault, InvalidInput, StagerError, error_from
from stager.model.files import File, Source
from stager.model.units import counted
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.ports import OriginAccess, OriginEntry
from stager.readers.lines import Finding, Findings, Place

STAT_CHUNK = 10_000
LIST_WORTH = 64
# Each call is a process and, over ssh, a login: hundreds of directories are asked by name, many questions at once in one call.
LISTS_MAX = 4
SIZE_ONLY = re.compile(r"s=[0-9]+")
LIST_SLACK = 16

Answers = dict[tuple[str, str], OriginEntry | Fault]
# What was asked of an origin and not answered, with the inputs that it was asked for.
Trouble = dict[Fault, list[Finding]]
Where = Mapping[str, tuple[Place, str]]


def resolve(workflow: Workflow, access: OriginAccess, *, findings: Findings | None = None, where: Where | None = None) -> Workflow:
    """Sources in the order they will be tried (priority, site, order of writing), each with size and token; those that are gone are left
    out while another is there. A source that has a token (a listing saw it) is not asked again. Raises InvalidInput on all that is missing
    or differs (and on `findings` there were before), else the class of what an origin said, by the first input that it was said of."""
    answers = ask(workflow, access)
    findings = Findings(workflow.source_path or workflow.name) if findings is None else findings
    trouble: Trouble = {}
    files: dict[str, File] = {}
    for lfn, each in workflow.files.items():
        if not each.is_external:
            files[lfn] = each
            continue
        place, key = (where or {}).get(lfn, (Place(), ""))
        found, faults = settle(each, answers)
        if not found:
            note_absent(each, faults, workflow, findings, place, key, trouble)
        elif each.sha256 is None and len({source.size_bytes for source in found}) > 1:
            sizes = ", ".join(f"{shown(source)} has {source.size_bytes} bytes" for source in found)
            findings.note(place, key, f"the sources of {lfn!r} differ: {sizes}; leave the wrong one out, or give the sha256")
        else:
            files[lfn] = replace(each, sources=found, size_bytes=found[0].size_bytes)
    findings.raise_if_any()
    for fault, inputs in trouble.items():
        raise error_from(named(fault, inputs))
    resolved = replace(workflow, files=files)
    return replace(resolved, notes=tuple(dict.fromkeys((*workflow.notes, *likely_mistakes(resolved)))))


def named(fault: Fault, inputs: list[Finding]) -> Fault:
    """With the first of the inputs that it is about, where it is of the whole origin and names none itself."""
    if fault.subject:
        return fault
    first = inputs[0]
    more = f" (and {len(inputs) - 1} more likewise)" if len(inputs) > 1 else ""
    return replace(fault, message=str(replace(first, message=f"{first.message}{more}: {fault.message}")), subject=first.key)


def likely_mistakes(workflow: Workflow) -> Iterator[str]:
    """Where size and token do not tell one content from another."""
    young = unsettled(workflow)
    if young:
        when = f"{counted(len(young), 'input', 'was', 'were')} written less than 2 s before the listing, {young[0]!r} first"
        yield f"{when}; one that still changes fails its fetch"
    unmarked = [
        lfn
        for lfn, file in workflow.files.items()
        if not file.sha256 and any(SIZE_ONLY.fullmatch(source.token or "") for source in file.sources)
    ]
    if unmarked:
        what = f"of {counted(len(unmarked), 'input')} the server tells the size and nothing else, {unmarked[0]!r} first"
        yield f"{what}; a change that keeps the size is not noticed, unless you give the sha256"


def unsettled(workflow: Workflow) -> list[str]:
    """Files written so short a time ago that size and time do not yet tell two contents apart."""
    return [lfn for lfn, file in workflow.files.items() if any(not source.settled for source in file.sources)]


def shown(source: Source) -> str:
    return f"{source.location.origin}:{source.location.path}"


def address(source: Source, workflow: Workflow) -> str:
    return f"{workflow.origins[source.location.origin].url.rstrip('/')}/{source.location.path}"


def note_absent(
    file: File,
    faults: list[tuple[Source, Fault]],
    workflow: Workflow,
    findings: Findings,
    place: Place,
    key: str,
    trouble: Trouble,
) -> None:
    """Not there is for the author of the workflow to mend; not to be asked is another's."""
    for source, fault in faults:
        if fault.code == "not_found":
            findings.note(place, key, f"input {file.lfn!r} is missing: there is no {shown(source)} (at {address(source, workflow)})")
        elif fault.error_class is ErrorClass.INVALID_INPUT:
            findings.note(place, key, f"input {file.lfn!r}: {fault.message}")
        else:
            same = replace(fault, subject="") if fault.code in ORIGIN_CODES else fault
            told = Finding(findings.file, place, key or file.lfn, f"input {file.lfn!r} at {address(source, workflow)}")
            trouble.setdefault(same, []).append(told)


def settle(file: File, answers: Answers) -> tuple[tuple[Source, ...], list[tuple[Source, Fault]]]:
    """(sources that are there, those that are not)."""
    found: list[Source] = []
    faults: list[tuple[Source, Fault]] = []
    for source in sorted(file.sources, key=lambda source: (source.priority, source.site)):
        if source.token is not None:
            found.append(source)
            continue
        answer = answers[source.location.origin, source.location.path]
        if isinstance(answer, Fault):
            faults.append((source, answer))
        elif answer.kind != "file":
            message = f"{shown(source)} is a directory; write {shown(source)}/ for all files below it"
            faults.append((source, Fault(ErrorClass.INVALID_INPUT, "bad_request", message, source.location.path)))
        else:
            found.append(replace(source, size_bytes=answer.size_bytes, token=answer.token, settled=answer.settled))
    return tuple(found), faults


def ask(workflow: Workflow, access: OriginAccess) -> Answers:
    """One answer for each (origin, path) that is not known yet."""
    wanted: dict[str, dict[str, None]] = {}
    for file in workflow.files.values():
        for source in file.sources:
            if source.token is None:
                wanted.setdefault(source.location.origin, {})[source.location.path] = None
    answers: Answers = {}
    for name, paths in wanted.items():
        origin = workflow.origins[name]
        try:
            found = ask_origin(origin, list(paths), access)
        except StagerError as error:
            found = dict.fromkeys(paths, error.fault())
        answers.update(((name, path), answer) for path, answer in found.items())
    return answers


def ask_origin(origin: Origin, paths: list[str], access: OriginAccess) -> dict[str, OriginEntry | Fault]:
    """The directories with the most wanted files are listed, the rest is asked for by name, in chunks."""
    found: dict[str, OriginEntry | Fault] = {}
    lists_max = 0 if origin.kind is OriginKind.HTTP else LISTS_MAX
    for directory, count in Counter(path.rpartition("/")[0] for path in paths).most_common(lists_max):
        if count >= LIST_WORTH:
            found.update((entry.path, entry) for entry in list_if_small(origin, directory, count, access))
    answers = {path: found[path] for path in paths if path in found}
    rest = [path for path in paths if path not in found]
    for chunk in chunks(rest, STAT_CHUNK):
        answers.update(zip(chunk, access.stat(origin, chunk), strict=True))
    return answers


def list_if_small(origin: Origin, directory: str, count: int, access: OriginAccess) -> list[OriginEntry]:
    """A directory that holds far more than is wanted costs more to list than to ask. Files that it leaves out are asked for by name."""
    try:
        return access.list(origin, directory, recursive=False, limit=count * LIST_SLACK).files
    except InvalidInput:
        return []


def chunks(items: list[str], size: int) -> Iterable[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
