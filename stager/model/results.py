"""Results of jobs, as they are remembered beyond their run: what a job of this key made, and what lies where.

One rule: these are facts that were verified when they were written down; whether they still hold is asked anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from stager.model.ids import digest_of
from stager.model.workflow import Origin


@dataclass(frozen=True, slots=True)
class MadeOutput:
    """`path` in the sandbox."""

    path: str
    size_bytes: int
    blake3: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """`parts`: of the key, by name. An optional output that was not made is not in `outputs`."""

    key: str
    run: str
    job: str
    job_type: str
    workflow: str
    parts: dict[str, str]
    outputs: tuple[MadeOutput, ...]
    made_at: float
    compute_s: float | None = None
    last_used_at: float = 0.0

    @property
    def size_bytes(self) -> int:
        return sum(output.size_bytes for output in self.outputs)


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """An intermediate that nodes hold for later runs, under the id `file`. `remake_s`: what its making took, and what its inputs would
    cost.
    """

    file: str
    size_bytes: int
    blake3: str
    executable: bool = False
    remake_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SeenAt:
    """What a path at an origin held under this token. `at`: nothing that was written later was seen. `verified`: how a final was; empty
    of an input.
    """

    origin: str
    path: str
    token: str
    size_bytes: int
    blake3: str
    at: float
    verified: str = ""
    synced: str = ""


def origin_key(origin: Origin) -> str:
    """The same for all who ask the same place in the same way, and nothing of a user or a secret can be read from it."""
    return digest_of("results", *origin.identity)
