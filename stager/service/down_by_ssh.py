"""`stager ionode down` and `stager worker down`: one of the two on a host that is reached by ssh ends, when nothing is lost with it.

May know: ssh_link, far_stager. One rule: it is drained first, and the other one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stager.adapters.authority import Authority
from stager.adapters.far_host import FarHost
from stager.adapters.ssh_link import SshTarget, ssh_link
from stager.model.errors import Refused
from stager.service.far_stager import Say, record_of, run_stager, with_python
from stager.service.state_dir import StateDir

PROGRAMS = ("python3", "python3.11", "python3.12", "python3.13")


@dataclass(frozen=True, slots=True)
class FarDown:
    """What a person asked for. `is_node`: the I/O node is to end, else the worker."""

    target: SshTarget
    is_node: bool
    python: str = ""


@dataclass(frozen=True, slots=True)
class DownFacts:
    """`ended` False: there was none."""

    host: str
    node_id: str
    store: str
    ended: bool


def bring_down(asked: FarDown, place: StateDir, environ: Mapping[str, str], drain: Callable[[str], None], say: Say) -> DownFacts:
    """`drain` is called with the name of the host where it runs, and returns when it can end. Raises StagerError that names the host."""
    cluster = Authority(place.authority).fingerprint()
    with ssh_link(asked.target, environ) as link:

        def ended(far: FarHost) -> DownFacts:
            said = far.ask("look", root=asked.target.path, software="none", files=[])
            record, root, current = record_of(link, said, cluster), said["root"], said["current"]
            if record is None or not current:
                text = f"nothing in {root} on {link.endpoint} was brought up from here"
                raise Refused(f"{text}; `stager host stop` on that host ends what was started there", code="not_joined", subject=root)
            facts = DownFacts(str(link.endpoint), record.node_id, root, True)
            if not (record.has_node if asked.is_node else record.worker is not None):
                return DownFacts(facts.host, facts.node_id, root, False)
            if asked.is_node and record.worker is not None:
                text = f"the worker of {record.node_id} reads from this node"
                raise Refused(f"{text}; end it first with `stager worker down`", code="has_worker", subject=record.node_id)
            if said["is_kept"]:
                drain(record.node_id)
            keeps_node = not asked.is_node and record.has_node
            words = ["host", "join", "--no-worker", "--json"] if keeps_node else ["host", "stop"]
            run_stager(far, root, current, [*words, "--store", root], say)
            return facts

        programs = [asked.python] if asked.python else PROGRAMS
        return with_python(link, programs, "Say where a Python is there with --python", ended)
