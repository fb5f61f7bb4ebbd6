"""The places of a program that measures: directories of its own, and an end after which nothing of it is left, however it comes.

    with own_place(given.dir) as place, Network() as net:
        ...

SIGTERM, SIGHUP and Ctrl-C end it as an error would: everything is taken down in order, and a second signal does not cut that short. What
kill -9 leaves behind the next program that opens a place takes away. Which that is stands in a note beside the tools of the tests.

May know: the bed of hosts, what tests leave behind, loop devices. One rule: all that such a program makes lies in its places, runs on its
hosts, or carries its mark.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.testbed import forked, leftovers, network
from tests.testbed.places import tool_cache
from tests.testbed.processes import is_alive, started_at

# Short, because the path of a Unix socket may have 107 bytes only.
PREFIX = "sb-"
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
LOOPS = Path("/sys/block")
# Where the control groups of version 1 keep limits of devices, which outlive a loop device.
THROTTLES = Path("/sys/fs/cgroup/blkio")

_open: list[Path] = []
_before: dict[str, Any] = {}


@contextlib.contextmanager
def own_place(parent: str | Path | None = None) -> Iterator[Path]:
    """A directory below `parent`. The first one of a program is the last to go, with all that is left of the program."""
    first = not _open
    if first:
        begin()
    try:
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
        _open.append(place)
        try:
            note()
            yield place
        finally:
            clear(f"no mark of {place}", [place])
            _open.remove(place)
            note()
    finally:
        if first:
            finish()


def begin() -> None:
    for text in sweep():
        print(text, file=sys.stderr)
    _before.update({"pid": os.getpid(), "mark": os.environ.get(leftovers.MARK)})
    _before["handlers"] = {each: signal.signal(each, end_in_order) for each in SIGNALS}
    os.environ[leftovers.MARK] = own_mark()


def finish() -> None:
    forked.end_server()
    clear(own_mark(), [])
    network.remove_namespaces(network.namespaces_of(os.getpid()))
    own_note().unlink(missing_ok=True)
    if _before["mark"] is None:
        os.environ.pop(leftovers.MARK)
    else:
        os.environ[leftovers.MARK] = _before["mark"]
    for number, handler in _before["handlers"].items():
        signal.signal(number, handler)
    _before.clear()


def end_in_order(number: int, _: object) -> NoReturn:
    if os.getpid() != _before["pid"]:
        # A fork, which has nothing to take down.
        os._exit(128 + number)
    # Not SIG_IGN: what is started on the way down would be deaf, too.
    for each in SIGNALS:
        signal.signal(each, lambda *_: None)
    print(f"ends by {signal.Signals(number).name}, and takes down what it started", file=sys.stderr, flush=True)
    sys.exit(128 + number)


def own_mark() -> str:
    return f"{os.getpid()}-{started_at(os.getpid())}"


def notes_dir() -> Path:
    return tool_cache() / "places"


def own_note() -> Path:
    return notes_dir() / own_mark()


def note() -> None:
    """Read by the next program if this one is killed."""
    notes_dir().mkdir(parents=True, exist_ok=True)
    own_note().write_text(json.dumps([str(place) for place in _open]))


def sweep() -> list[str]:
    """Takes away what killed programs left; says so."""
    told = []
    for left in sorted(notes_dir().glob("*-*")):
        pid, _, start = left.name.partition("-")
        if is_alive(int(pid)) and started_at(int(pid)) == int(start):
            continue
        with contextlib.suppress(FileNotFoundError):  # another program sweeps it just now
            places = [Path(place) for place in json.loads(left.read_text() or "[]")]
            clear(left.name, [place for place in places if place.name.startswith(PREFIX)])
            left.unlink()
            told.append(f"took away what a program of pid {pid} had left: {', '.join(map(str, places)) or 'its processes'}")
    hosts = network.sweep() if network.why_not() is None else []
    return [*told, *([f"took away hosts that were left: {', '.join(hosts)}"] if hosts else [])]


def clear(mark: str, places: Sequence[Path]) -> None:
    """Processes, mounts and loop devices, and the places themselves."""
    leftovers.clean(leftovers.left_processes(mark, places), leftovers.left_mounts(places))
    for loop in loops_in(places):
        for limit in THROTTLES.glob("blkio.throttle.*_device"):
            with contextlib.suppress(OSError):
                limit.write_text(f"{(loop / 'dev').read_text().strip()} 0")
        subprocess.run(["losetup", "--detach", f"/dev/{loop.name}"], check=False, capture_output=True)
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def loops_in(places: Sequence[Path]) -> list[Path]:
    found = []
    for file in LOOPS.glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if leftovers.is_below(file.read_text().strip().removesuffix(" (deleted)"), places):
                found.append(file.parents[1])
    return found
