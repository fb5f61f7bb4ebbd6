"""Answers of `stager simulate` as text and as JSON. One rule: it only prints; of a run that does not succeed nothing is judged, and its
rates are null, as where jobs read nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stager.cli.tables import console, print_table, rate_text
from stager.model.units import counted, format_duration, format_size
from stager.whatif import Answer, Judged

COLUMNS = ("makespan", "bound", "above it", "bottleneck", "hits", "MIN", "LRU", "fetched", "again", "uploaded", "spilled")

RATES = ("hit_rate", "min_hit_rate", "lru_hit_rate", "best_hit_rate")


def print_answers(titles: Sequence[str], varied: Sequence[str], given: Sequence[Sequence[str]], answers: Sequence[Answer]) -> None:
    """One in full, several as a table, what failed below it."""
    out = console()
    for title in titles:
        out.print(title, markup=False)
    if len(answers) == 1:
        for line in lines_of(answers[0]):
            out.print(line, markup=False)
        return
    out.print()
    columns = [*((name, "right") for name in varied), *((name, "right") for name in COLUMNS)]
    print_table(columns, [[*row, *cells_of(answer)] for row, answer in zip(given, answers, strict=True)])
    for row, answer in zip(given, answers, strict=True):
        if answer.judged is None:
            named = ", ".join(f"{name} {word}" for name, word in zip(varied, row, strict=True))
            out.print(f"{named}: {reason(answer)}", markup=False)


def above(judged: Judged) -> str:
    return f"{max(0.0, judged.above - 1):.0%}"


def reason(answer: Answer) -> str:
    return f"{answer.outcome.value}{': ' + answer.fault.message if answer.fault is not None else ''}"


def cells_of(answer: Answer) -> list[str]:
    judged = answer.judged
    if judged is None:
        return [answer.outcome.value, *[""] * (len(COLUMNS) - 1)]
    return [
        format_duration(answer.wall_s),
        format_duration(judged.bound.least_s),
        above(judged),
        judged.bottleneck.value,
        *(rate_text(getattr(answer, name), 1) for name in RATES[:3]),
        *(format_size(size) for size in (answer.fetched_bytes, answer.refetched_bytes, answer.uploaded_bytes, answer.spilled_bytes)),
    ]


def lines_of(answer: Answer) -> list[str]:
    judged = answer.judged
    if judged is None:
        return [reason(answer)]
    tightest = judged.bound.tightest
    resumed = f", resumed {counted(answer.resumes, 'time')}" if answer.resumes else ""
    return [
        f"makespan     {format_duration(answer.wall_s)}, {counted(answer.attempts, 'attempt')}{resumed}",
        f"lower bound  {format_duration(judged.bound.least_s)}, of the {tightest.limit.value}; the run is {above(judged)} above it",
        f"bottleneck   {judged.bottleneck.value}: {judged.why}",
        hits_line(answer),
        f"WAN          {format_size(answer.fetched_bytes)} fetched, {format_size(answer.refetched_bytes)} of it again; "
        f"{format_size(answer.uploaded_bytes)} uploaded, {format_size(answer.spilled_bytes)} of it spilled; "
        f"{format_size(answer.readback_bytes)} read back to verify",
        "no run is faster than",
        *(f"  {format_duration(term.least_s):>12}  {term.limit.value}: {term.about}" for term in judged.bound.terms),
    ]


def hits_line(answer: Answer) -> str:
    if answer.hit_rate is None:
        return "hit rate     —, jobs read nothing"
    least, lru, best = (rate_text(rate, 1) for rate in (answer.min_hit_rate, answer.lru_hit_rate, answer.best_hit_rate))
    read = format_size(answer.read_bytes)
    return f"hit rate     {rate_text(answer.hit_rate, 1)} of {read} that jobs read; MIN {least}, LRU {lru}, no cache more than {best}"


def answer_json(answer: Answer) -> dict[str, Any]:
    judged = answer.judged
    bound = judged.bound if judged is not None else None
    return {
        "outcome": answer.outcome.value,
        "fault": answer.fault.message if answer.fault is not None else None,
        "makespan_s": answer.wall_s if judged is not None else None,
        "bound_s": bound.least_s if bound is not None else None,
        "above": judged.above if judged is not None else None,
        "bottleneck": judged.bottleneck.value if judged is not None else None,
        "why": judged.why if judged is not None else None,
        "terms": [
            {"limit": term.limit.value, "about": term.about, "busy_s": term.busy_s, "least_s": term.least_s}
            for term in (bound.terms if bound is not None else ())
        ],
        **{name: getattr(answer, name) if judged is not None else None for name in RATES},
        "read_bytes": answer.read_bytes,
        "fetched_bytes": answer.fetched_bytes,
        "refetched_bytes": answer.refetched_bytes,
        "uploaded_bytes": answer.uploaded_bytes,
        "readback_bytes": answer.readback_bytes,
        "spilled_bytes": answer.spilled_bytes,
        "attempts": answer.attempts,
        "resumes": answer.resumes,
    }
