"""What stager-transfer says: lines on stderr in the form of pegasus-transfer, which users and pegasus-analyzer know.

May know: the time. One rule: one line at a time, whole, whichever thread says it; passwords in URLs are left out.
"""

from __future__ import annotations

import re
import sys
import threading
import time

PASSWORD = re.compile(r"(\w+://[^/\s:@]*):[^/\s@]*@")


class Log:
    __slots__ = ("debugging", "lock", "stream")

    def __init__(self, debugging: bool = False) -> None:
        self.debugging = debugging
        self.lock = threading.Lock()
        self.stream = sys.stderr

    def line(self, level: str, text: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        shown = PASSWORD.sub(r"\1:***@", text)
        # A name may hold bytes that are no text.
        said = f"{stamp},{int(now % 1 * 1000):03d} {level:>7}:  {shown}\n".encode(errors="surrogateescape")
        with self.lock:
            self.stream.flush()
            self.stream.buffer.write(said)
            self.stream.flush()

    def debug(self, text: str) -> None:
        if self.debugging:
            self.line("DEBUG", text)

    def info(self, text: str) -> None:
        self.line("INFO", text)

    def warning(self, text: str) -> None:
        self.line("WARNING", text)

    def error(self, text: str) -> None:
        self.line("ERROR", text)
