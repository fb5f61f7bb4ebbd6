"""The messages of stager-transfer: lines on stderr in the form of pegasus-transfer, which users and pegasus-analyzer know.

May know: the time. One rule: one line at a time, whole, whichever thread says it; passwords in URLs are left out, and what cannot be said
(a full disk under the .err of the job) stops nothing.
"""

from __future__ import annotations

import os
import re
import threading
import time

STDERR = 2
PASSWORD = re.compile(r"(\w+://[^/\s:@]*):[^/\s@]*@")


class Log:
    __slots__ = ("debugging", "lock")

    def __init__(self, debugging: bool = False) -> None:
        self.debugging = debugging
        self.lock = threading.Lock()

    def line(self, level: str, text: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        said = as_bytes(f"{stamp},{int(now % 1 * 1000):03d} {level:>7}:  {without_passwords(text)}\n")
        with self.lock:
            try:
                # Past Python's buffers: what stays in them ends the process with a code of its own.
                while said:
                    said = said[os.write(STDERR, said) :]
            except OSError:
                return

    def debug(self, text: str) -> None:
        if self.debugging:
            self.line("DEBUG", text)

    def info(self, text: str) -> None:
        self.line("INFO", text)

    def warning(self, text: str) -> None:
        self.line("WARNING", text)

    def error(self, text: str) -> None:
        self.line("ERROR", text)


def without_passwords(text: str) -> str:
    """Of URLs."""
    return PASSWORD.sub(r"\1:***@", text)


def as_bytes(text: str) -> bytes:
    """A name may hold bytes that are no text, and JSON half a character."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace")
