"""A report of each try and how it went: for monitord, for kickstart, and for people.

May know: the forms that Pegasus reads. One rule: an attempt is told whether it went well or not, without the password of a URL, and no
other report is written over.
"""

from __future__ import annotations

import json
import os
import threading
import time

from pegasus_stager.integrity import quoted
from pegasus_stager.lists import Transfer
from pegasus_stager.log import Log, without_passwords
from pegasus_stager.urls import Url

NAMES_TRIED = 3600
UNITS = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


class Report:
    __slots__ = ("began", "blocks", "checks", "lock", "pairs")

    def __init__(self) -> None:
        self.began = time.time()
        self.lock = threading.Lock()
        self.blocks: list[str] = []
        # (transfers, bytes) by "site->site".
        self.pairs: dict[str, tuple[int, int]] = {}
        # (succeeded, failed, seconds) by linkage.
        self.checks: dict[str, tuple[int, int, float]] = {}

    def attempt(self, transfer: Transfer, source: Url, went_well: bool, began: float) -> None:
        ended = time.time()
        size_bytes = local_size_bytes(source, transfer.destination)
        lines = [
            f"  - src_url: {quoted(without_passwords(str(source)))}",
            f"    src_label: {quoted(source.site)}",
            f"    dst_url: {quoted(without_passwords(str(transfer.destination)))}",
            f"    dst_label: {quoted(transfer.destination.site)}",
            f"    success: {went_well}",
            f"    start: {began:.0f}",
            f"    duration: {ended - began:.1f}",
        ]
        lines += [f"    lfn: {quoted(transfer.lfn)}"] if transfer.lfn else []
        lines += [f"    bytes: {size_bytes}"] if size_bytes else []
        key = f"{source.site}->{transfer.destination.site}"
        with self.lock:
            self.blocks.append("\n".join(lines) + "\n")
            count, total = self.pairs.get(key, (0, 0))
            self.pairs[key] = (count + 1, total + size_bytes)

    def check(self, linkage: str, went_well: bool, took_s: float) -> None:
        with self.lock:
            good, bad, total_s = self.checks.get(linkage, (0, 0, 0.0))
            self.checks[linkage] = (good + went_well, bad + (not went_well), total_s + took_s)

    def published(self, multipart_dir: str | None, log: Log) -> None:
        """Written where monitord looks, then said."""
        if multipart_dir is not None:
            try:
                write_new(multipart_dir, "- transfer_attempts:\n" + "".join(self.blocks))
            except OSError as problem:
                log.error(f"cannot write the statistics to PEGASUS_MULTIPART_DIR={multipart_dir}: {problem.strerror or problem}")
        for linkage, (good, bad, took_s) in self.checks.items():
            log.info(f"@@@MONITORING_PAYLOAD - START@@@{payload(linkage, good, bad, took_s)}@@@MONITORING_PAYLOAD - END@@@")
        if not self.pairs:
            log.info("Stats: no local files in the transfer set")
            return
        took_s = max(time.time() - self.began, 0.001)
        count, total = (sum(numbers) for numbers in zip(*self.pairs.values()))
        log.info(f"Stats: Total {told(count, total, took_s)}")
        for key, (count, total) in self.pairs.items():
            log.info(f"       Between sites {key} : {told(count, total, took_s)}")


def local_size_bytes(source: Url, destination: Url) -> int:
    """Of the end that is a file here, as monitord adds them up."""
    for url in (source, destination):
        if url.protocol == "file":
            try:
                return os.stat(url.path).st_size
            except (OSError, ValueError):
                return 0
    return 0


def write_new(directory: str, text: str) -> None:
    """SECONDS-transfer, as monitord and kickstart expect. Two calls may end in one second: the later takes the next free number, since the
    name of the first is taken by a report that must stay."""
    now = int(time.time())
    for second in range(now, now + NAMES_TRIED):
        try:
            handle = os.open(os.path.join(directory, f"{second}-transfer"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        return
    raise OSError(f"{NAMES_TRIED} names from {now}-transfer on are taken")


def payload(linkage: str, good: int, bad: int, took_s: float) -> str:
    event = {"event": "check", "file_type": linkage, "succeeded": good, "failed": bad, "duration": f"{took_s:.3f}"}
    return json.dumps({"ts": int(time.time()), "monitoring_event": "int.metric", "payload": [event]})


def told(count: int, total_bytes: int, took_s: float) -> str:
    rate = total_bytes / took_s
    return f"{count} transfers, {short(total_bytes)}B transferred in {took_s:.1f} seconds. Rate: {short(rate)}B/s ({short(rate * 8)}b/s)"


def short(number: float) -> str:
    for unit, size in UNITS:
        if number > size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.1f} "
