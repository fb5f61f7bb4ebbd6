"""Processes of the testbed: start with a log file, wait for the port, end the whole tree.

May know: /proc. One rule: a server that dies at its start says why, with the end of its log.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

from tests.testbed.waiting import wait_until

# Above the one that browsers refuse (10080).
FIRST_PORT, LAST_PORT = 11_000, 32_768
LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
# "1/3": every third port, from the second on. A server that is started again finds its port free though others look for one meanwhile.
PORTS_SHARE = "STAGER_TEST_PORTS"
_given: set[int] = set()
WRITTEN_LATE_S = 2.0


def own_ports(below: int, environ: Mapping[str, str] = os.environ) -> list[int]:
    number, _, shares = environ.get(PORTS_SHARE, "0/1").partition("/")
    return list(range(FIRST_PORT + int(number), below, int(shares)))


def share_ports(environ: MutableMapping[str, str] = os.environ) -> None:
    """Among the workers of a session of tests; what they start has the share of its worker."""
    worker, count = environ.get("PYTEST_XDIST_WORKER", ""), environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    if worker.startswith("gw") and count:
        environ[PORTS_SHARE] = f"{int(worker[2:]) % int(count)}/{count}"


class Where:
    """Where a server runs and is reached: here, on loopback. `tests.testbed.network.Host` is another place."""

    address = "127.0.0.1"

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """What to start here in order to run it there."""
        return [str(word) for word in argv]

    def outside(self, path: str | Path) -> Path:
        """Where this process finds the file that has this path there: to place what a server reads, and to read what it wrote."""
        return Path(path)

    def free_port(self) -> int:
        """One that no connection and no server that takes any gets by itself, and that was not given to another here: it stays free
        until its server is there, also while that is started again. Whoever loses the race for it all the same tries again."""
        ports = own_ports(min(LAST_PORT, int(LOCAL_PORTS.read_text().split()[0])))
        random.shuffle(ports)
        for port in sorted(ports, key=_given.__contains__):
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self.address, port))
                _given.add(port)
                return port
        with socket.socket() as probe:
            probe.bind((self.address, 0))
            return int(probe.getsockname()[1])

    def answers(self, port: int) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, port), timeout=1.0):
            return True
        return False


HERE = Where()
free_port, answers = HERE.free_port, HERE.answers


def is_listening(path: Path) -> bool:
    """A Unix socket has its name before anybody is let in."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def parent_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        # The name of the program, in brackets, may hold anything: read on behind its last bracket.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return None


def is_zombie(pid: int) -> bool:
    """Dead, and waits for its parent. While it is being killed its first thread may be so, and another still hold its files and locks."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state == "Z" and os.listdir(f"/proc/{pid}/task") == [str(pid)]
    return False


def threads_of(pid: int) -> str:
    """What each of its threads is at, for a message: of one that does not end."""
    found = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda task: int(task.name)):
        with contextlib.suppress(OSError):
            state = (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            found.append(f"{task.name} {(task / 'comm').read_text().strip()} {state} {(task / 'wchan').read_text()}")
    return ", ".join(found)


def is_alive(pid: int) -> bool:
    """Runs, or could: a zombie is dead."""
    return Path(f"/proc/{pid}").exists() and not is_zombie(pid)


def started_at(pid: int) -> int:
    """In ticks since the boot: with the pid it names a process for good. 0: there is none."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    return 0


def pid_in(file: Path, pid: int) -> int | None:
    """The pid that a process has written there, while it lives: numbers come round, and another one that has it now began later."""
    ago_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_at(pid) / os.sysconf("SC_CLK_TCK")
    is_its_own = time.time() - ago_s < file.stat().st_mtime + WRITTEN_LATE_S
    return pid if is_alive(pid) and is_its_own else None


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def descendants(pid: int) -> list[int]:
    """All processes below this one, children before grandchildren."""
    children: dict[int, list[int]] = {}
    for other in all_pids():
        children.setdefault(parent_of(other) or 0, []).append(other)
    found = list(children.get(pid, ()))
    for child in found:
        found += children.get(child, ())
    return found


def children_s() -> float:
    """Processor time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def end(pids: Sequence[int], signal_number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_number)


class Server:
    """One process in its own session, its output in a log file."""

    def __init__(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, where: Where = HERE
    ) -> None:
        self.argv, self.log, self.env, self.cwd, self.where = list(argv), log, env, cwd, where
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.where.command(self.argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self.env,
                cwd=self.cwd,
            )

    def start_on(self, port: int, deadline_s: float = 120.0) -> None:
        self.start()
        try:
            wait_until(lambda: self.gone() or self.where.answers(port), f"{self.argv[0]} on port {port}", deadline_s)
            if self.gone():
                raise AssertionError(f"{self.argv[0]} ended at its start with {self.returncode()}")
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}; the end of its log:\n{self.log_text()[-2000:]}") from None

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def gone(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def returncode(self) -> int | None:
        return self.process.returncode if self.process else None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """kill -9 of this one process, as a crash would do; what it started lives on."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """TERM, then after a while KILL, with everything below it."""
        if self.process is None:
            return
        below = descendants(self.process.pid)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        end(below)
        self.process = None
