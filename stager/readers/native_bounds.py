"""`budget:`, `finish_by:` and `objective:` of a native workflow: what its runs may cost, and when they are to have ended.

May know: forms, units. One rule: the texts are checked here and kept as they are; what they come to is reckoned at each submit.
"""

from __future__ import annotations

from datetime import datetime
from datetime import time as clock_time

from stager.model.units import parse_duration_s, parse_money
from stager.model.workflow import Bounds
from stager.readers.lines import nearest
from stager.readers.native_form import Fields

BOUND_KEYS = ("budget", "finish_by", "objective")
OBJECTIVES = ("time", "cost")


def read_bounds(fields: Fields, engine: str) -> Bounds:
    if engine:
        for name in [name for name in BOUND_KEYS if name in fields]:
            text = f"{engine} starts the jobs of this workflow, and stager could not pause them; leave {name!r} out"
            fields.form.findings.note(fields.place(name), name, text)
        return Bounds()
    budget, finish_by = fields.parsed("budget", money_text, ""), fields.parsed("finish_by", instant_text, "")
    return Bounds(budget, finish_by, fields.parsed("objective", objective_text, ""))


def money_text(text: str) -> str:
    parse_money(text)
    return text


def instant_text(text: str) -> str:
    """Whether it is over is seen at the submit."""
    text = text.strip()
    try:
        if text.startswith("+"):
            parse_duration_s(text[1:])
        elif len(text) <= len("18:00:00"):
            clock_time.fromisoformat(text)
        elif datetime.fromisoformat(text).tzinfo is None:
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time to finish by; write as in 18:00, +3h, or 2026-11-27T18:00:00+01:00") from None
    return text


def objective_text(text: str) -> str:
    if text not in OBJECTIVES:
        raise ValueError(f"{text!r} is unknown; choose {' or '.join(OBJECTIVES)}{nearest(text, OBJECTIVES)}")
    return text
