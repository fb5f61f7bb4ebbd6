"""A job's files as strace saw them: which bytes were read, how often, in which order. strace traces; here its lines are only read.

May know: strace's output of calls on descriptors (`-f -y -s 0`). One rule: what cannot be followed (mmap, asynchronous I/O) is unknown, not
guessed: the file it is about is marked, and where it may be about any file, all are.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# What opens, moves, shares or uses the position in a file. A leading ? lets strace pass over what a machine does not have.
CALLS = (
    "execve execveat open openat openat2 creat read pread64 readv preadv preadv2 write writev lseek dup dup2 "
    "dup3 fcntl clone clone3 fork vfork mmap sendfile copy_file_range splice ioctl io_uring_setup io_setup "
    "rename renameat renameat2 link linkat"
).split()
ASYNCHRONOUS = frozenset({"io_uring_setup", "io_setup"})
FORKS = frozenset({"clone", "clone3", "fork", "vfork"})
OPENS = frozenset({"open", "openat", "openat2", "creat"})
COPIES = frozenset({"sendfile", "copy_file_range", "splice"})
RENAMES = frozenset({"rename", "renameat", "renameat2", "link", "linkat"})

LINE = re.compile(r"(\d+) +(.*)")
CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)(?:<([^<>]*)>(?:\(deleted\))?)?(?: .*)?")
UNFINISHED, RESUMED = " <unfinished ...>", re.compile(r"<\.\.\. (\w+) resumed>(.*)")
DESCRIPTOR = re.compile(r"(\d+)<([^<>]*)>")
OWN_PID = re.compile(r"/\* (\d+) in strace's PID NS \*/")
ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|(.))")
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f"}
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
OFFSETS = re.compile(r"NULL|\[(\d+)\](?: => \[\d+\])?")


def command_prefix(program: str, output: str) -> tuple[str, ...]:
    """To be followed by the traced command. `--seccomp-bpf` stops the job only at the calls that are looked at."""
    traced = ",".join(f"?{call}" for call in CALLS)
    return (program, "-f", "-y", "-s", "0", "-qq", "--seccomp-bpf", "-e", "signal=none", "-e", f"trace={traced}", "-o", output, "--")


@dataclass(slots=True)
class FileTrace:
    """`touched`: the bytes that were read, as (start, end), ascending and apart. `sequential_bytes` came in reads that went on where the
    last one through the same open file ended, or began at the start of the file. Not `followed`: what was read of it is unknown.
    """

    path: str
    read_bytes: int = 0
    sequential_bytes: int = 0
    followed: bool = True
    mapped: bool = False
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def read(self, start: int, count: int, *, goes_on: bool) -> None:
        self.read_bytes += count
        self.sequential_bytes += count if goes_on else 0
        if self.ranges and self.ranges[-1][1] == start:
            self.ranges[-1] = (self.ranges[-1][0], start + count)
        else:
            self.ranges.append((start, start + count))

    @property
    def touched_bytes(self) -> int:
        """Each byte once."""
        total = reached = 0
        for start, end in sorted(self.ranges):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
        return total


@dataclass(slots=True)
class OpenFile:
    """The state that descriptors share which were copied from one another. `position` None: it was opened before the trace."""

    path: str
    position: int | None = 0
    read_end: int = 0


Descriptors = dict[int, OpenFile]


class Trace:
    """Feed it all lines, then look at `files`: each that was opened or used, by path. `executed`: programs as they were named; the kernel
    maps them. `renamed`: last parts of names that were given to other files, or taken from them.
    """

    def __init__(self) -> None:
        self.files: dict[str, FileTrace] = {}
        self.asynchronous = False
        self.executed: list[str] = []
        self.renamed: set[str] = set()
        self.tables: dict[int, Descriptors] = {}
        self.begun: dict[int, str] = {}
        self.unknown: dict[int, list[str]] = {}

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            parts = LINE.match(line.rstrip("\n"))
            if parts is not None:
                self._line(int(parts[1]), parts[2])
        for pid, kept in list(self.unknown.items()):
            self._born(pid, {}, kept)

    def _line(self, pid: int, text: str) -> None:
        if pid not in self.tables:
            if self.tables and not self._take_child(pid):
                # Its birth is told later than its first call.
                self.unknown.setdefault(pid, []).append(text)
                return
            self.tables.setdefault(pid, {})
        resumed = RESUMED.match(text)
        if text.endswith(UNFINISHED):
            self.begun[pid] = text.removesuffix(UNFINISHED)
            return
        if resumed is not None:
            text = self.begun.pop(pid, "") + resumed[2]
        call = CALL.fullmatch(text)
        if call is not None:
            self._call(pid, call[1], call[2], call[3], call[4], text)

    def _take_child(self, pid: int) -> bool:
        """A first call of a new process while exactly one other is in the middle of making one."""
        parents = [parent for parent, text in self.begun.items() if text.partition("(")[0] in FORKS]
        if len(parents) != 1:
            return False
        self._born(pid, self._for_child(parents[0], self.begun[parents[0]]), [])
        return True

    def _for_child(self, parent: int, arguments: str) -> Descriptors:
        table = self.tables.setdefault(parent, {})
        return table if "CLONE_FILES" in arguments else dict(table)

    def _born(self, pid: int, table: Descriptors, kept: list[str]) -> None:
        self.unknown.pop(pid, None)
        self.tables[pid] = table
        for text in kept:
            self._line(pid, text)

    def _call(self, pid: int, name: str, arguments: str, result: str, opened: str | None, text: str) -> None:
        if result.startswith("-"):
            return
        table = self.tables[pid]
        if name in FORKS:
            inside = OWN_PID.search(text)
            child = int(inside[1] if inside else result)
            if child not in self.tables:
                self._born(child, self._for_child(pid, arguments), self.unknown.get(child, []))
        elif name in ASYNCHRONOUS:
            self.asynchronous = True
        elif name in ("execve", "execveat"):
            self.tables[pid] = dict(table)
            self.executed += [unescaped(found[1]) for found in QUOTED.finditer(arguments.partition("[")[0])]
        elif name in RENAMES:
            # Relative to a directory that is not known here: by their last names.
            self.renamed |= {posixpath.basename(unescaped(found[1])) for found in QUOTED.finditer(arguments)}
        elif name in OPENS and opened is not None:
            table[int(result)] = OpenFile(self._of(unescaped(opened)).path)
        elif name in COPIES:
            self._copy(table, name, arguments, int(result))
        else:
            self._use(table, name, arguments, result, opened)

    def _use(self, table: Descriptors, name: str, arguments: str, result: str, opened: str | None) -> None:
        found = [(int(number), unescaped(path)) for number, path in DESCRIPTOR.findall(arguments)]
        if not found:
            return
        file = self._open_file(table, *found[0])
        if name == "mmap":
            for _, path in found:
                self._of(path).mapped = True
        elif name == "ioctl":
            # Of all its calls only those that clone a file read it.
            if "CLONE" in arguments:
                self._of(found[-1][1]).followed = False
        elif name == "lseek":
            file.position = int(result)
        elif name in ("dup", "dup2", "dup3") or (name == "fcntl" and "F_DUPFD" in arguments):
            table[int(result)] = file
        elif name in ("read", "readv"):
            self._read(file, file.position, int(result), moves=True)
        elif name.startswith("pread"):
            self._read(file, explicit_offset(name, arguments), int(result), moves=False)
        elif name in ("write", "writev") and file.position is not None:
            file.position += int(result)

    def _copy(self, table: Descriptors, name: str, arguments: str, count: int) -> None:
        """Of one file into another: the source comes second in sendfile, first in the others."""
        found = DESCRIPTOR.findall(arguments)
        offsets = [match[1] for match in OFFSETS.finditer(DESCRIPTOR.sub("", arguments))]
        if len(found) < 2:
            return
        source = found[1] if name == "sendfile" else found[0]
        file = self._open_file(table, int(source[0]), unescaped(source[1]))
        given = next(iter(offsets), None)
        self._read(file, file.position if given is None else int(given), count, moves=given is None)

    def _read(self, file: OpenFile, start: int | None, count: int, *, moves: bool) -> None:
        if count == 0:
            return
        if start is None:
            self._of(file.path).followed = False
            return
        self._of(file.path).read(start, count, goes_on=start in (0, file.read_end))
        file.read_end = start + count
        if moves:
            file.position = start + count

    def _open_file(self, table: Descriptors, number: int, path: str) -> OpenFile:
        """One that came in another way than by a call that was seen has a path, and no known position."""
        file = table.get(number)
        if file is None or file.path != path:
            file = table[number] = OpenFile(path, None)
        return file

    def _of(self, path: str) -> FileTrace:
        if path not in self.files:
            self.files[path] = FileTrace(path)
        return self.files[path]


def explicit_offset(name: str, arguments: str) -> int | None:
    """The last argument, in preadv2 the last but one."""
    text = arguments.rpartition(", ")[0] if name == "preadv2" else arguments
    last = text.rpartition(", ")[2]
    return int(last) if last.isdigit() else None


def unescaped(path: str) -> str:
    """strace writes what is not printable, and <, > and the backslash, as in C."""

    def byte(match: re.Match[bytes]) -> bytes:
        return bytes([int(match[1], 8) & 255]) if match[1] else LETTERS.get(match[2], match[2])

    return ESCAPE.sub(byte, path.encode()).decode("utf-8", "surrogateescape") if "\\" in path else path
