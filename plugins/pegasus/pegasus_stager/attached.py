"""A workflow that `stager pegasus attach` looks after: inputs of its jobs come from stager's cache, and what they make is given to it.

May know: the file that attach leaves in the submit directory, the calls of an engine's run. One rule: whatever goes wrong here is one
warning, and the list is done as without stager.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence

from pegasus_stager import local_files
from pegasus_stager.failures import Failed
from pegasus_stager.lists import ListEntry, Transfer
from pegasus_stager.log import Log
from pegasus_stager.report import Report
from pegasus_stager.scheduler import Declined, Scheduler, Unasked
from pegasus_stager.urls import Url

# lists.py says why.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
POLL_S = 20.0
# After that it is sure that waiting costs more than a second way over the line.
PATIENCE_S = 3600.0
AT_HOME = ("durable", "written")
# Something newer is at its place.
SUPERSEDED = "superseded"
STAND_S = (0.05, 1.0)
Checksum = Callable[[Transfer, Url], None]


class Left(Exception):
    """The list is done without stager; says why."""


class Attached:
    """The call of this job, from `begin` to `end`. `stage_out`: its list sends home what jobs have made."""

    def __init__(self, place: str, environ: Mapping[str, str], log: Log) -> None:
        self.place, self.log = place, log
        self.job = environ["PEGASUS_DAG_JOB_ID"]
        self.uuid = environ.get("PEGASUS_WF_UUID", "")
        self.stage_out = False
        self.used = False
        self.call = ""
        self.given: list[tuple[Transfer, str]] = []
        self.wanted: list[str] = []

    def begin(self, entries: Sequence[ListEntry], report: Report, checksum: Checksum) -> list[ListEntry]:
        """The entries of the list that are left to do. Entries whose file stager has here get that as their first source."""
        transfers = [entry for entry in entries if isinstance(entry, Transfer) and entry.lfn]
        if not transfers:
            return list(entries)
        try:
            view = self.staged(transfers)
            done = self.sent_home(transfers, view, report, checksum) if self.stage_out else self.sourced(transfers, view)
            return [entry for entry in entries if entry not in done]
        except Declined as problem:
            if problem.code == "not_found":
                self.log.debug(f"job {self.job} is none that stager stages")
                return list(entries)
            self.leave(str(problem))
        except (Unasked, Left, Failed, OSError) as problem:
            self.leave(str(problem))
        except Exception as problem:
            # An answer of another shape than this version knows must not cost the job its files.
            self.leave(f"{type(problem).__name__}: {problem}")
        return list(entries)

    def end(self, went_well: bool) -> None:
        """After the list was done: what this job made is given to stager, and its call ends."""
        if not self.used:
            return
        try:
            if not went_well:
                self.tell_failed("its transfers failed")
                return
            for entry, path in self.given:
                local_files.copy_file(entry.sources[0].path, path)
            if all(os.path.exists(path) for path in self.wanted):
                self.finished(0.0)
        except Exception as problem:
            # The list is done, whatever went wrong.
            self.log.warning(f"stager was not told how job {self.job} ended: {problem}. All that is on its list is done")

    def leave(self, reason: str) -> None:
        self.used = False
        self.log.warning(f"the files of job {self.job} do not come from stager: {reason}. They are transferred as without it")
        if self.call:
            self.tell_failed("its files are transferred as without stager")

    def tell_failed(self, message: str) -> None:
        """Gives back the call's inputs. Where that cannot be said, the next try takes its place."""
        try:
            self.scheduler.post("/calls/fail", job=self.job, call=self.call, message=message)
        except (Unasked, Declined) as problem:
            self.log.debug(f"call {self.call} is still open: {problem}")

    # What is asked

    def staged(self, transfers: Sequence[Transfer]) -> dict[str, object]:
        """The call, as soon as its inputs are there. Raises Left."""
        word = self.word()
        self.scheduler = Scheduler(str(word["socket"]), str(word["run"]), dict(word.get("headers") or {}))
        self.same_run(word)
        self.stage_out = self.job in (word.get("stage_out") or ())
        call, began = call_name(), time.monotonic()
        view = self.scheduler.post("/calls", job=self.job, call=call, pins=self.stage_out)
        self.call = call
        while view.get("state") == "waiting":
            if time.monotonic() - began > PATIENCE_S:
                raise Left(f"after {PATIENCE_S:.0f} s its inputs are not there")
            view = self.scheduler.post("/calls/staged", POLL_S, **self.names())
        if view.get("state") != "staged":
            fault = view.get("fault")
            raise Left(str(fault.get("message")) if isinstance(fault, dict) else f"its call is {view.get('state')}")
        took_s = time.monotonic() - began
        self.log.info(f"stager has the files of job {self.job} ready ({took_s:.1f} s, {len(transfers)} on the list)")
        return view

    def same_run(self, word: Mapping[str, object]) -> None:
        """Its files have the same names in every run of this workflow. Raises Left."""
        if "submitted_at" not in word:
            return
        info = self.scheduler.get("").get("info")
        if not isinstance(info, dict) or info.get("submitted_at") != word["submitted_at"]:
            raise Left(f"the scheduler has another run of that name, {word['run']}, since its state was removed; attach again")

    def sourced(self, transfers: Sequence[Transfer], view: Mapping[str, object]) -> list[ListEntry]:
        """Nothing is done by that yet."""
        here, wanted = paths_of(view, "inputs"), paths_of(view, "outputs")
        for entry in transfers:
            if entry.linkage == "output":
                if entry.lfn in wanted and entry.sources[0].protocol == "file":
                    self.given.append((entry, wanted[entry.lfn]))
            elif here.get(entry.lfn) and entry.destination.protocol not in ("symlink", "moveto"):
                entry.sources.insert(0, held(here[entry.lfn], entry.sources[0].site))
                self.used = True
        self.used = self.used or bool(self.given)
        self.wanted = list(wanted.values())
        return []

    def sent_home(self, transfers: Sequence[Transfer], view: Mapping[str, object], report: Report, checksum: Checksum) -> list[ListEntry]:
        """By the node; it is done when it is at its destination, verified."""
        known, wanted = paths_of(view, "inputs"), paths_of(view, "outputs")
        taken: list[Transfer] = []
        began = time.time()
        for entry in transfers:
            if entry.verify_checksum:
                continue
            if entry.lfn in wanted and entry.sources[0].protocol == "file":
                checksum(entry, entry.sources[0])
                local_files.copy_file(entry.sources[0].path, wanted[entry.lfn])
                taken.append(entry)
            elif entry.lfn in known and not entry.generate_checksum:
                taken.append(entry)
        if len({entry.lfn for entry in taken}) < len(known) + len(wanted):
            raise Left("its list is not the one that was planned, or wants checksums that stager-transfer has to take")
        self.finished(PATIENCE_S)
        for entry in taken:
            self.at_home(entry)
            report.attempt(entry, entry.sources[0], True, began)
            self.log.info(f"{entry} (by stager)")
        return list(taken)

    def finished(self, patience_s: float) -> None:
        """Raises Left if what it made is not taken. When the end is known it will be, whoever waits for it."""
        end = time.monotonic() + patience_s
        while True:
            view = self.scheduler.post("/calls/finish", min(POLL_S, patience_s), **self.names())
            if view.get("state") == "done" or (view.get("state") == "publishing" and not patience_s):
                return
            fault = view.get("fault")
            if view.get("state") != "publishing" or time.monotonic() > end:
                raise Left(str(fault.get("message")) if isinstance(fault, dict) else f"its call is {view.get('state')}")

    def at_home(self, entry: Transfer) -> None:
        """Raises Left if it does not get there by stager."""
        end, stand_s = time.monotonic() + PATIENCE_S, STAND_S[0]
        while time.monotonic() < end:
            files = self.scheduler.get("/ledger", lfn=entry.lfn).get("files")
            for file in files if isinstance(files, list) else ():
                if file.get("state") in AT_HOME:
                    return
                if file.get("state") == SUPERSEDED:
                    # To send it by other means would write the older over the newer.
                    self.log.warning(str(file.get("fault")))
                    return
                if file.get("fault"):
                    raise Left(f"{entry.destination} was not written: {file['fault']}")
            time.sleep(stand_s)
            stand_s = min(2 * stand_s, STAND_S[1])
        raise Left(f"{entry.destination} was not written in time")

    def names(self) -> dict[str, object]:
        return {"job": self.job, "call": self.call}

    def word(self) -> dict[str, Any]:
        """The word that attach has left. Only a file that nobody else can write is believed: it says whom to give files to."""
        seen = os.stat(self.place)
        if seen.st_uid != os.geteuid():
            raise Left(f"{self.place} belongs to another user; whose jobs these are must attach")
        if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Left(f"{self.place} can be written by others")
        try:
            with open(self.place, "rb") as file:
                word = json.loads(file.read())
            if word["format"] != FORMAT:
                raise Left(f"{self.place} is of format {word['format']}, and this stager-transfer knows {FORMAT}; install both alike")
            if self.uuid and word["uuid"] != self.uuid:
                raise Left(f"{self.place} is of another workflow, {word['uuid']}")
        except (ValueError, KeyError, TypeError) as problem:
            raise Left(f"{self.place} is not what attach writes: {type(problem).__name__}: {problem}") from problem
        return dict(word)


def paths_of(view: Mapping[str, object], side: str) -> dict[str, str]:
    files = view.get(side)
    return {str(file["lfn"]): str(file["path"]) for file in files} if isinstance(files, list) else {}


def held(path: str, site: str) -> Url:
    """A file of the call's directory, which goes when the call ends: it may be taken, and must not be linked to."""
    url = Url("file:///", site, {})
    url.path, url.held = path, True
    return url


def call_name() -> str:
    """One for all lists of one try of a job: they have the same parent, kickstart or the script of PegasusLite, and no other try has."""
    parent = os.getppid()
    with open(f"/proc/{parent}/stat", "rb") as file:
        started = file.read().rpartition(b")")[2].split()[19].decode()
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        boot = file.read(8).decode()
    return f"{boot}-{parent}-{started}"
