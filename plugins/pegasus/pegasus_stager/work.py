"""One entry of a list done here: each source of a transfer in turn, with the checksums and statistics that Pegasus wants of it.

May know: what does which pair of protocols. One rule: a source is only read, whatever else goes wrong.
"""

from __future__ import annotations

import os
import threading
import time

from pegasus_stager import integrity, local_files
from pegasus_stager.failures import Failed
from pegasus_stager.lists import Directory, ListEntry, Removal, Transfer
from pegasus_stager.log import Log
from pegasus_stager.report import Report
from pegasus_stager.settings import TransferSettings
from pegasus_stager.urls import Url
from pegasus_stager.ways import LOCAL_PAIRS, LOCAL_REMOVED, Ways

UNCHECKED = ("symlink", "moveto")
DAMAGE = b"Here be dragons! Eh, I mean pegai!"


class Worker:
    """Does the entries of a list; all threads share it. `symlink`: files are linked instead of copied (-s)."""

    def __init__(self, settings: TransferSettings, ways: Ways, symlink: bool, report: Report, log: Log) -> None:
        self.settings, self.ways, self.symlink, self.report, self.log = settings, ways, symlink, report, log
        self.lock = threading.Lock()
        self.checksummed: set[str] = set()

    def do(self, entry: ListEntry) -> None:
        if isinstance(entry, Transfer):
            self.transfer(entry)
        elif isinstance(entry, Directory):
            self.directory(entry.url)
        elif isinstance(entry, Removal):
            self.removal(entry)

    def directory(self, url: Url) -> None:
        self.warn_of_unset(url)
        if url.protocol == "file":
            local_files.make_directory(url.path)
        else:
            self.ways.ask(url, "make_directory")

    def warn_of_unset(self, url: Url) -> None:
        if url.unset:
            self.log.warning(f"{', '.join(url.unset)} not set in the environment and taken as empty in {url}")

    def removal(self, entry: Removal) -> None:
        url = entry.url
        if url.unset:
            # Empty, `$SCRATCH/data` is /data.
            text = f"{url} is not removed: {', '.join(url.unset)} not set in the environment, so it may name what was never meant"
            raise Failed(f"{text}; set it where the job runs", lasting=True)
        if url.protocol not in LOCAL_REMOVED:
            self.ways.ask(url, "erase")
            return
        # pegasus-transfer never looks below the target of a symlink: URL.
        local_files.remove(url.path, entry.recursive and url.protocol == "file")
        self.log.debug(f"removed {url}")

    def transfer(self, entry: Transfer) -> None:
        """The next source is tried at once; a round has failed when all have."""
        problems = []
        for source in entry.sources:
            began = time.time()
            try:
                sha256 = self.moved(entry, source)
            except Failed as problem:
                self.report.attempt(entry, source, False, began)
                problems.append(problem)
                continue
            self.report.attempt(entry, source, True, began)
            try:
                self.checked(entry, source, sha256)
            except Failed as problem:
                problems.append(problem)
                continue
            return
        text = "; then ".join(str(problem) for problem in problems)
        raise Failed(text, lasting=all(problem.lasting for problem in problems))

    def moved(self, entry: Transfer, source: Url) -> str:
        """Returns the SHA-256 of what was put on another machine and verified there."""
        target = entry.destination
        sha256 = ""
        for url in (source, target):
            self.warn_of_unset(url)
        if (source.protocol, target.protocol) not in LOCAL_PAIRS:
            sha256 = self.sent(entry, source) if source.protocol == "file" else self.fetched(entry, source)
            self.log.info(f"{source} -> {target}")
            return sha256
        local_files.parent_made(target.path)
        if target.protocol == "moveto":
            self.checksum(entry, source)
            local_files.move_file(source.path, target.path)
        elif target.protocol == "symlink":
            self.linked(entry, source)
        else:
            self.copied(entry, source)
        self.log.info(f"{source} -> {target}")
        return sha256

    def fetched(self, entry: Transfer, source: Url) -> str:
        """Checks a file that is here already, and tells nothing of it."""
        local_files.parent_made(entry.destination.path)
        told: dict[str, object] = {}

        def bring(unfinished: str) -> None:
            told.update(self.ways.ask(source, "get", to=os.path.abspath(unfinished)))

        path = local_files.bring_file(source.path, entry.destination.path, bring)
        self.checksum(entry, entry.destination, str(told.get("sha256", "")))
        self.damaged(path)
        return ""

    def sent(self, entry: Transfer, source: Url) -> str:
        local_files.readable(source.path)
        self.checksum(entry, source)
        done = self.ways.ask(entry.destination, "put", **{"from": os.path.abspath(source.path)})
        if entry.verify_checksum and done.get("verified") == "size":
            raise Failed(
                f"{entry.destination}: its server does not let us read what was written, so its checksum is not known", lasting=True
            )
        return str(done.get("sha256", ""))

    def linked(self, entry: Transfer, source: Url) -> None:
        target = entry.destination
        there = os.path.exists(source.path)
        if entry.verify_source and not there:
            raise Failed(f"{target} is not linked: {source.path} is not there", lasting=source.checkpoint)
        if there and source.protocol == "file":
            self.checksum(entry, source)
        if not local_files.same_file(source.path, target.path):
            local_files.link_file(source.path, target.path)

    def copied(self, entry: Transfer, source: Url) -> None:
        target = entry.destination
        try:
            local_files.readable(source.path)
        except Failed as problem:
            # A checkpoint is there or not: PegasusLite asks when the job has ended, and does not mind.
            raise Failed(str(problem), lasting=problem.lasting or source.checkpoint) from problem
        self.checksum(entry, source)
        if source.held:
            local_files.take_file(source.path, target.path)
            self.damaged(target.path)
        elif local_files.same_file(source.path, target.path):
            self.log.warning(f"{source} and {target} are the same file already")
        elif self.symlink:
            local_files.link_file(source.path, target.path)
        else:
            local_files.copy_file(source.path, target.path)
            self.damaged(target.path)

    def checksum(self, entry: Transfer, file: Url, known_sha256: str = "") -> None:
        """Once for each lfn. A transfer does not fail by it, as in pegasus-transfer: the next program that wants the checksum says so."""
        if not entry.generate_checksum:
            return
        if not entry.lfn:
            self.log.error(f"no checksum of {file}: its entry of the list has no lfn")
            return
        with self.lock:
            if entry.lfn in self.checksummed:
                return
            self.checksummed.add(entry.lfn)
        try:
            block = integrity.kickstart_block(entry.lfn, file.path, known_sha256)
            with self.lock:
                if not integrity.recorded(block, self.settings.integrity_file):
                    self.log.info(block)
        except (Failed, OSError) as problem:
            self.log.error(f"no checksum of {file} was recorded: {problem}")
            with self.lock:
                self.checksummed.discard(entry.lfn)

    def damaged(self, path: str) -> None:
        """PEGASUS_TRANSFER_ERROR_RATE: for tests of the integrity checks, copies (and only copies) are spoiled now and then."""
        if not self.settings.error_percent:
            return
        import random

        if random.randint(1, 100) > self.settings.error_percent:
            return
        self.log.warning(f"PEGASUS_TRANSFER_ERROR_RATE={self.settings.error_percent}: spoiling {path}")
        try:
            with open(path, "ab") as file:
                file.write(DAMAGE)
        except OSError as problem:
            self.log.error(f"{path} could not be spoiled: {problem.strerror or problem}")

    def checked(self, entry: Transfer, source: Url, sha256: str) -> None:
        """verify_checksum_remote: the file is read again where it is now; `sha256`: it was, elsewhere. A wrong copy does not stay here."""
        if not entry.verify_checksum:
            return
        if entry.destination.protocol in UNCHECKED:
            self.log.info(f"{entry.destination} is not checked: it is the source itself, under another name")
            return
        path = entry.destination.path
        began = time.time()
        try:
            integrity.check(entry.lfn, path, sha256)
        except Failed:
            self.report.check(entry.linkage, False, time.time() - began)
            if (
                entry.destination.protocol == "file"
                and os.path.isfile(path)
                and not os.path.islink(path)
                and not local_files.same_file(source.path, path)
            ):
                os.unlink(path)
            raise
        self.report.check(entry.linkage, True, time.time() - began)
