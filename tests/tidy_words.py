"""Rules for words and for the width of pages, as functions from text to findings. tests/test_tidy.py applies them.

May know: which words the project gave up, and where they may still stand. One rule: a finding says which word to use instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

COLUMNS_MAX = 100

# Words of our own that the field has a name for (docs/decisions/2026-11-24-words.md): those that mean nothing else. Each is found in
# identifiers of any spelling, and in prose.
GIVEN_UP = {
    r"courier": "transfer agent",
    r"errand": "transfer job",
    r"vouch(?:ed|es|ing)?": "origin checksum, or to verify",
    r"hasten(?:s|ed|ing)?": "reprioritize",
    r"foret(?:old|ells?|elling)": "predicted",
    r"overtaken(?!-finals)": "superseded",
    r"tall(?:y|ies)": "counters",
    r"outlook": "node watch",
    r"urgency": "priority",
    r"make_room": "free_space",
    r"leave_behind": "delete_migrated",
    r"look_before": "needs_stat",
    r"look_s": "POLL_S",
    r"shel(?:f|ves?|ved|ving)": "KeptSandboxes, shard directory, fallback directory",
    r"require_?ours": "require_native",
    r"fetch_?instead": "direct fallback",
    r"read_?in_?place": "read directly",
    r"(?:run|engine|transfer)_?desk": "RunService, EngineService, TransferTable",
    r"grower": "in-flight replica",
    r"loose parts": "orphaned parts",
    r"pure rooms?": "pure packages",
    r"the house": "the project",
    r"lived through": "simulated",
}
# Of classes: the same word in prose means something else.
CLASSES_GIVEN_UP = {
    "Fence": "AccessPolicy",
    "FencedAccess": "TenantAccess",
    "Gather": "AssembleStripes, or CoalescingBuffer",
    "Tries": "Retries",
    "Turn": "Decision",
    "Desk": "the noun that it serves",
    "Flight": "Permit",
    "Impatient": "ProtocolWithTimeouts",
    "Wishes": "InterruptHandler",
    "Doubt": "Uncertainty",
    "Lived": "Simulated",
    "Line": "the noun that is meant: ReadyQueue, FittedLine, RunGroup, ComparisonRow, SharedClient",
    "InPlace": "DirectAccess",
    "Spares": "replication",
    "Books": "State",
    "Room": "eviction",
    "Growing": "the replica in flight",
    "Story": "Timeline",
    "Said": "Answered, or the noun that is meant",
}
# Of classes in Python alone: in Rust the same name has a meaning of its own.
PYTHON_CLASSES_GIVEN_UP = {
    "Entry": "the noun that is meant: OriginEntry, LedgerRow, StateEntry, CheckedMapping, ListEntry",
}
CLASSES = CLASSES_GIVEN_UP | PYTHON_CLASSES_GIVEN_UP
WORDS = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(f'({word})' for word in GIVEN_UP)})(?![a-zA-Z])", re.IGNORECASE)
DEFINED = re.compile(
    rf"^\s*(?:pub(?:\([a-z]+\))? )?(?:(?:class|struct|enum|trait|type) ({'|'.join(CLASSES_GIVEN_UP)})|class ({'|'.join(CLASSES)}))\b",
    re.MULTILINE,
)
# What reads the formats of before, and what tells of the past.
MAY_SAY_THEM = (
    "docs/decisions/",
    "changelog.d/",
    "CHANGELOG.md",
    "stager/adapters/journal_names.py",
    "stager/adapters/run_records.py",
    "stager/planning/old_names.py",
    "tests/unit/test_old_names.py",
    "plugins/airflow/src/airflow/providers/stager/service.py",
    "tests/unit/test_runtime_past.py",
    "tests/tidy_words.py",
    "tests/test_tidy.py",
)


def word_findings(text: str, where: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for found in WORDS.finditer(snake(line)):
            index = next(index for index, group in enumerate(found.groups()) if group is not None)
            yield f"{where}:{number}: {found[0]!r} is a word of before; say {list(GIVEN_UP.values())[index]}"
    for found in DEFINED.finditer(text):
        name = found[1] or found[2]
        yield f"{where}:{text.count(chr(10), 0, found.end()) + 1}: {name} is a name of before; say {CLASSES[name]}"


def snake(line: str) -> str:
    """`FetchInstead` -> `Fetch_Instead`, so that each word begins at a boundary."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", line)


def width_findings(page: str, where: str) -> Iterator[str]:
    """Tables, code, comments for tests and lines that are one long word (a link) may be wider."""
    in_code = False
    for number, line in enumerate(page.splitlines(), 1):
        if re.match(r" *(```|~~~)", line):
            in_code = not in_code
        elif (
            not in_code
            and len(line) > COLUMNS_MAX
            and not line.startswith("|")
            and " " in line[:COLUMNS_MAX].strip().lstrip("-*# ")
            and not line.startswith("<!--")
        ):
            yield f"{where}:{number}: {len(line)} columns; wrap at {COLUMNS_MAX}"
