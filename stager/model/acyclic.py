"""Values that cannot hold themselves.

One rule: only for frozen classes whose fields are there before them.
"""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def acyclic(kind: type[Value]) -> type[Value]:
    """The `repr` of a dataclass looks out for cycles at every level, which takes it half of its time. A plan's digest is made of the
    `repr` of every job and file.
    """
    written = kind.__repr__
    kind.__repr__ = getattr(written, "__wrapped__", written)  # type: ignore[method-assign]
    return kind
