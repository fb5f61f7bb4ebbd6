"""Stager on a host that is reached by ssh: which Python it gets, what it was told before, and its commands.

May know: far_host, and what `stager host join` keeps in its directory. One rule: what it says there is said here, with the host's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from stager.adapters.far_host import FarHost, Missing, far_host
from stager.adapters.ssh_link import SshLink
from stager.model.errors import Denied, InvalidInput, Refused, StagerError, Transient
from stager.service.host_node import Record

# By its exit code, which `stager host` ended with there.
CLASSES: dict[int, type[StagerError]] = {2: InvalidInput, 3: Refused, 5: Transient, 7: Denied}
T = TypeVar("T")
Say = Callable[[str], None]


def with_python(link: SshLink, programs: Sequence[str], advice: str, do: Callable[[FarHost], T]) -> T:
    """By the first of them that will do. Raises Refused with advice where none does."""
    problem: StagerError = Missing("no Python was named")
    for program in programs:
        try:
            with far_host(link, program) as far:
                return do(far)
        except Missing as missing:
            problem = missing
    raise Refused(f"{problem.message}. {advice}", code=problem.code, subject=problem.subject)


def record_of(link: SshLink, said: Mapping[str, Any], cluster: str) -> Record | None:
    """What the host was told before. Raises Refused where it is another cluster's."""
    if said["record"] is None:
        return None
    record = msgspec.convert(said["record"], Record)
    if said["ca_sha256"] != cluster:
        text = f"{said['root']} on {link.endpoint} is that of {record.node_id} in another cluster, at {record.scheduler}"
        raise Refused(f"{text}; name another directory in the URL", code="another_cluster", subject=record.node_id)
    return record


def run_stager(far: FarHost, root: str, software: str, words: Sequence[str], say: Say, given: str = "") -> str:
    """What it prints. Raises what it ends with."""
    code, out, err = far.run(root, [f"{root}/software/{software}/bin/python", "-m", "stager.cli", *words], given)
    if code == 0:
        for line in err.splitlines():
            say(line)
        return out
    where = far.link.endpoint
    text = err.strip().removeprefix("stager: ") or f"`stager {words[0]} {words[1]}` ended with {code}"
    raise CLASSES.get(code, Refused)(f"{where}: {text}", code="far_side", subject=str(where))
