"""Texts of users' code and of Airflow, as Airflow itself would log them: with the secrets that it knows replaced.

May know: where Airflow keeps its masker. One rule: what cannot be masked is not told.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

# A task's process knows its secrets in the first, the scheduler and the API server theirs in the second; each is a masker of its own. The
# others are the places of older versions.
PLACES = ("airflow.sdk._shared.secrets_masker", "airflow._shared.secrets_masker")
OLDER = ("airflow.sdk.log", "airflow.sdk.execution_time.secrets_masker")
UNTOLD = "its words are left out here, for Airflow's masker of secrets was not found"


@cache
def maskers() -> tuple[Callable[[str], object], ...]:
    return found_in(PLACES) or found_in(OLDER)


def found_in(places: tuple[str, ...]) -> tuple[Callable[[str], object], ...]:
    found = []
    for place in places:
        try:
            found.append(importlib.import_module(place).redact)
        except (ImportError, AttributeError):
            continue
    return tuple(found)


def masked(text: str) -> str:
    """Never raises."""
    if not maskers():
        return UNTOLD
    try:
        for redact in maskers():
            text = str(redact(text))
    except Exception as problem:
        return f"{UNTOLD[: UNTOLD.index(',')]}: {type(problem).__name__} in Airflow's masker of secrets"
    return text
