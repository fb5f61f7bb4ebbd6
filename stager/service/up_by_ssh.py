"""`stager ionode up` and `stager worker up`, whole: a host that is reached by ssh gets this stager, and joins the cluster with it.

May know: ssh_link, far_host, own_software, and what `stager host join` keeps in its directory there. One rule: what is as it should be is
left alone, and nothing that runs there is replaced before a person has said so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stager.adapters.authority import Authority
from stager.adapters.far_host import FarHost, Missing
from stager.adapters.own_software import Software, own_software
from stager.adapters.registry_file import FileRegistry
from stager.adapters.ssh_link import SshLink, SshTarget, ssh_link
from stager.model.errors import InvalidInput, Refused
from stager.model.units import counted, format_size
from stager.service.far_stager import Say, record_of, run_stager, with_python
from stager.service.host_node import Record, Wanted
from stager.service.inviting import invite_url, listening_at
from stager.service.state_dir import StateDir

INVITE_TTL_S = 900.0
TOLD_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class FarUp:
    """What a person asked for. `python`: empty: what is found there. `is_node`: it is about the I/O node, else about the worker.
    `may_replace`: what runs there may be started again with this stager. `unit`: of systemd, `user` or `system`; empty: as it is there.
    """

    target: SshTarget
    is_node: bool
    wanted: Wanted
    python: str = ""
    may_replace: bool = False
    address: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """How a host is. `lacks`: the numbers of files. `current`: the software that it runs; empty: none that was sent. `unit`: by
    which systemd starts it.
    """

    root: str
    free_bytes: int
    is_kept: bool
    current: str
    lacks: list[int]
    unit: str = ""
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class FarFacts:
    """`joined`: as `stager host join --json` prints it; empty where nothing had to be done."""

    host: str
    node_id: str
    store: str
    software: str
    done: str
    sent_files: int = 0
    joined: dict[str, Any] = field(default_factory=dict)


def bring_up(asked: FarUp, place: StateDir, environ: Mapping[str, str], say: Say) -> FarFacts:
    """Raises StagerError that names the host. Called again it goes on where it was broken off."""
    cluster = Authority(place.authority).fingerprint()
    if not asked.address:
        listening_at(place)
    with ssh_link(asked.target, environ) as link:
        software = own_software(environ)
        names = [asked.python] if asked.python else programs(software)
        advice = f"It needs Python {dotted(software)}, as there is here: install it there, or say where with --python"
        return with_python(link, names, advice, lambda far: Bringing(asked, place, cluster, software, link, far, say).whole())


def programs(software: Software) -> list[str]:
    return [f"python{dotted(software)}", "python3"]


def dotted(software: Software) -> str:
    return f"{software.python[0]}.{software.python[1]}"


@dataclass
class Bringing:
    """Of one host, once."""

    asked: FarUp
    place: StateDir
    cluster: str
    software: Software
    link: SshLink
    far: FarHost
    say: Say

    def whole(self) -> FarFacts:
        seen = self._look()
        wanted = self._wanted(seen.record)
        node_id = seen.record.node_id if seen.record is not None else ""
        is_known = node_id in FileRegistry(self.place.nodes).nodes()
        is_same = seen.current == self.software.name and not seen.lacks
        has_unit = self.asked.unit in ("", seen.unit)
        if is_same and seen.is_kept and is_known and has_unit and seen.record is not None and is_as_said(wanted, seen.record):
            return FarFacts(str(self.link.endpoint), node_id, seen.root, self.software.name, "nothing")
        if seen.is_kept and not is_same:
            self._may_replace(seen)
        self._send(seen)
        if seen.is_kept and not is_same:
            self.say("ends node and worker, and starts both again; jobs go on")
            self._stager(seen.root, "host", "stop", "--store", seen.root)
        url = "" if is_known else invite_url(self.place, time.time(), INVITE_TTL_S, self.asked.address).url
        self.say(
            "joins the cluster"
            if url
            else "is told what is wanted now"
            if seen.is_kept and is_same
            else "is in the cluster already, and starts"
        )
        words = ["host", "join", *(["-"] if url else []), "--store", seen.root, "--json", *words_of(wanted)]
        # What systemd has running goes on; what does not run is to be started by it.
        unit = "" if seen.is_kept and is_same and has_unit else self.asked.unit or seen.unit
        words += ["--systemd", unit] if unit else []
        joined = json.loads(self._stager(seen.root, *words, given=f"{url}\n"))
        self._started_by_systemd(seen.root, joined.get("steps", []))
        self.far.ask("use", root=seen.root, software=self.software.name)
        done = "joined" if url else "replaced" if seen.is_kept and not is_same else "changed" if seen.is_kept else "started"
        return FarFacts(str(self.link.endpoint), joined["node"], seen.root, self.software.name, done, len(seen.lacks), joined)

    def _look(self) -> Looked:
        software = self.software
        files = [[each.path, len(each.data), digest, each.mode] for each, digest in zip(software.files, software.digests, strict=True)]
        said = self.far.ask("look", root=self.asked.target.path, software=software.name, files=files)
        if said["python"] != list(software.python) or said["machine"] != software.machine:
            version = ".".join(map(str, said["python"]))
            text = f"{said['program']} on {self.link.endpoint} is Python {version} on {said['machine']}"
            raise Missing(f"{text}, and here it is {dotted(software)} on {software.machine}", code="python_differs", subject="python")
        record = record_of(self.link, said, self.cluster)
        return Looked(said["root"], said["free_bytes"], said["is_kept"], said["current"], said["lacks"], said["unit"], record)

    def _wanted(self, record: Record | None) -> Wanted:
        """One of the two is asked for, and the other stays as it is there."""
        wanted = self.asked.wanted
        if self.asked.is_node:
            return replace(wanted, has_node=True, has_worker=False if record is None else None)
        if record is None and not wanted.beside:
            text = f"there is no I/O node in {self.asked.target.path or 'the default directory'} on {self.link.endpoint}"
            advice = "name the node that its jobs read from with --beside ID, or the directory of the node there in the URL"
            raise InvalidInput(f"{text}; {advice}", subject="beside")
        return replace(wanted, has_node=False if record is None else None, has_worker=True)

    def _may_replace(self, seen: Looked) -> None:
        """What runs there is another stager, or its files are not as they were sent."""
        if seen.current == self.software.name:
            self.say(f"{counted(len(seen.lacks), 'file')} of stager there is not as it was sent")
            return
        runs = f"stager {seen.current}" if seen.current else "a stager that was not brought there by this command"
        if not self.asked.may_replace:
            text = f"{self.link.endpoint} runs {runs}, and here is {self.software.name}"
            advice = "with --replace its node and its worker are started again with this one, and jobs go on"
            raise Refused(f"{text}; {advice}", code="version_differs", subject=str(self.link.endpoint))
        self.say(f"runs {runs}, which {self.software.name} replaces")

    def _send(self, seen: Looked) -> None:
        if not seen.lacks:
            return
        size_bytes = sum(len(self.software.files[number].data) for number in seen.lacks)
        if size_bytes > seen.free_bytes:
            text = (
                f"{seen.root} on {self.link.endpoint} has {format_size(seen.free_bytes)} free, and stager takes {format_size(size_bytes)}"
            )
            raise Refused(f"{text}; free some space there, or name a directory on another disk", code="no_space", subject=seen.root)
        self.say(f"gets stager {self.software.name}: {counted(len(seen.lacks), 'file')}, {format_size(size_bytes)}")
        self.far.put(seen.root, self.software, seen.lacks, Progress(self.say).sent)

    def _stager(self, root: str, *words: str, given: str = "") -> str:
        return run_stager(self.far, root, self.software.name, words, self.say, given)

    def _started_by_systemd(self, root: str, steps: Sequence[str]) -> None:
        """Raises Refused with what is left to say there."""
        for number, step in enumerate(steps):
            self.say(step)
            code, _, err = self.far.run(root, step.split())
            if code != 0:
                text = f"the unit is on {self.link.endpoint}, and `{step}` there ended with {code}: {err.strip()}"
                left = "; ".join(steps[number:])
                raise Refused(f"{text}. Nothing runs there before you say: {left}", code="far_side", subject=str(self.link.endpoint))


class Progress:
    """Of what is sent, at times."""

    def __init__(self, say: Say) -> None:
        self.say, self.bytes, self.told_at = say, 0, 0.0

    def sent(self, more_bytes: int) -> None:
        if not self.bytes:
            self.told_at = time.monotonic()
        self.bytes += more_bytes
        if time.monotonic() - self.told_at > TOLD_EVERY_S:
            self.told_at = time.monotonic()
            self.say(f"{format_size(self.bytes)} sent, packed")


def words_of(wanted: Wanted) -> Sequence[str]:
    """Of `stager host join`."""
    words = []
    for name, flag in (("node", wanted.has_node), ("worker", wanted.has_worker)):
        words += [f"--{name}" if flag else f"--no-{name}"] if flag is not None else []
    for option, value in (
        ("--node-id", wanted.node_id),
        ("--capacity", wanted.capacity_bytes),
        ("--listen", wanted.listen),
        ("--beside", wanted.beside),
        ("--cores", wanted.cores),
        ("--memory", wanted.memory_bytes),
        ("--scratch", wanted.scratch),
        ("--scratch-size", wanted.scratch_bytes),
    ):
        words += [f"{option}={value}"] if value else []
    return words


def is_as_said(wanted: Wanted, record: Record) -> bool:
    """Nothing that was asked for differs from what the host was told before."""
    worker = record.worker
    pairs: list[tuple[Any, Any]] = [
        (wanted.node_id or None, record.node_id),
        (wanted.capacity_bytes, record.capacity_bytes),
        (wanted.listen or None, record.listen),
        (wanted.has_node, record.has_node),
        (wanted.has_worker, worker is not None),
    ]
    if worker is not None:
        pairs += [(wanted.beside or None, worker.beside), (wanted.cores, worker.cores), (wanted.memory_bytes, worker.memory_bytes)]
        pairs += [(wanted.scratch or None, worker.scratch), (wanted.scratch_bytes, worker.scratch_bytes)]
    return all(said is None or said == held for said, held in pairs)
