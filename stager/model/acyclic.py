"""Values that are written out by the hundred thousand: a plan's digest is made of the `repr` of every job and file.

One rule: they are written as ever, only quicker.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

Value = TypeVar("Value")
Kind = TypeVar("Kind", bound=Enum)


def acyclic(kind: type[Value]) -> type[Value]:
    """For a frozen class whose fields are there before it. The `repr` of a dataclass looks out for cycles at every level, which takes it
    half of its time.
    """
    written = kind.__repr__
    # A method may not be put in the place of another, to a type checker; that is what this is for.
    kind.__repr__ = getattr(written, "__wrapped__", written)  # type: ignore[method-assign]
    return kind


def written_once(kind: type[Kind]) -> type[Kind]:
    """For an enumeration: what is put together anew for each of its members takes a third of a file's `repr`."""
    # Nor may a member be given what its class does not name, which would be one more member.
    for member in kind:
        member.written = repr(member)  # type: ignore[attr-defined]
    kind.__repr__ = lambda member: member.written  # type: ignore[attr-defined,method-assign]
    return kind
