"""Fixtures over tests/testbed, and the order and the hygiene of a session of tests.

One rule: what a test started has ended when the session ends, or the session fails.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.testbed import forked, leftovers, network
from tests.testbed.ionode import IoNode
from tests.testbed.link import Link, running_link
from tests.testbed.pegasus import written_samples
from tests.testbed.places import GIVE_MORE_CASES, ionode_binary
from tests.testbed.processes import share_ports
from tests.testbed.s3 import S3, running_s3
from tests.testbed.sshd import Sshd, running_sshd
from tests.testbed.tiny_disk import tiny_disk as mounted_tiny_disk
from tests.testbed.web import Web, running_web

# Machines of continuous integration are slow at times: time limits are pytest's business, not hypothesis's.
# And the same cases are drawn each time, so that what fails fails by what was changed: `make draw` looks at others.
settings.register_profile(
    "stager",
    deadline=None,
    derandomize="STAGER_DRAW" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("stager")

# They import Airflow: tests/e2e/test_airflow.py runs them where it is.
collect_ignore = [] if importlib.util.find_spec("airflow") else ["airflow"]
# They build images and take more than ten minutes: `make test-compose` runs them.
collect_ignore += [] if "STAGER_TEST_COMPOSE" in os.environ else ["compose"]

# Objects made and not freed, before garbage is looked for.
GARBAGE_BEGINS_AT = 50_000

# Of --failures-to: where many fail, the first ones tell enough.
FAILURES_SHOWN, FIRST_LINES, LAST_LINES, FAILURE_WIDTH = 3, 5, 10, 500

# Quick and basic first: what breaks there explains the rest.
ORDER = ("test_tidy", "unit", "model", "sim", "scenarios", "testbed", "conformance", "e2e")
# With --longest-first these come before all others: one test or group of them takes a minute or more, and a worker that begins it last
# has the others wait for it.
LONGEST = (
    "e2e/test_airflow.py",
    "e2e/test_kill_matrix_hosts.py",
    "conformance/test_node_port.py",
    "e2e/test_supernovae.py",
    "e2e/test_montage.py",
    "e2e/test_montage_on_hosts.py",
    "conformance/test_pegasus_transfer.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--longest-first", action="store_true", help="the order of `make test`: what waits first, what takes a moment last")
    parser.addoption(
        "--units-apart", action="store_true", help="without the quick unit tests, but those that have cases from beside the clone"
    )
    parser.addoption("--failures-to", type=Path, help="a file for what failed in a few lines each, to be shown behind all other output")


# Before pytest-xdist reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if config.getoption("units_apart", False) and (apart := [item for item in items if is_run_alone(item)]):
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if not is_run_alone(item)]

    def rank(item: pytest.Item) -> int:
        room = item.path.relative_to(here).with_suffix("").parts[0] if item.path.is_relative_to(here) else ""
        return ORDER.index(room) if room in ORDER else len(ORDER)

    for item in items:
        if rank(item) == ORDER.index("e2e") and item.get_closest_marker("xdist_group") is None and has_a_bed(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    waiting = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("xdist_group")}

    def longest_first(item: pytest.Item) -> tuple[int, int, bool]:
        """Tests of a module stay together: a worker would make what they share twice."""
        name = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        return LONGEST.index(name) if name in LONGEST else len(LONGEST), -rank(item), item.path not in waiting

    items.sort(key=longest_first if config.getoption("longest_first", False) else rank)


def has_a_bed(item: Any) -> bool:
    """Its module makes something once. Of processes that is a service with all that belongs to it, and each worker would start its own."""
    return any(definitions[-1].scope == "module" for definitions in item._fixtureinfo.name2fixturedefs.values())


def is_run_alone(item: Any) -> bool:
    """`make unit-alone` runs it whole: a clone with nothing beside it lacks no case of its module."""
    is_unit = item.path.is_relative_to(Path(__file__).parent / "unit")
    return is_unit and item.get_closest_marker("slow") is None and not any(hasattr(item.module, each.__name__) for each in GIVE_MORE_CASES)


def pytest_collection_finish() -> None:
    """What is imported by now stays. A collector that goes through it again and again takes a tenth of a session's processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_BEGINS_AT, 20, 20)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Seconds by the directories of tests, added up over all workers, where there are minutes of them."""
    spent: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            spent["/".join(report.nodeid.partition("::")[0].split("/")[:2])] += report.duration
    if spent.total() > 60 and len(spent) > 1:
        told = ", ".join(f"{place} {seconds:.0f} s" for place, seconds in spent.most_common())
        terminalreporter.write_line(f"time of all workers together: {told}")
    if (file := terminalreporter.config.getoption("--failures-to")) is not None:
        failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())]
        file.write_text("".join(map(failure_in_short, failed[:FAILURES_SHOWN])))


def failure_in_short(report: Any) -> str:
    """Where it failed, and by what: of the lines that pytest marks with an E, or of all where it marks none, the first and the last."""
    lines = report.longreprtext.splitlines()
    told = [line for line in lines if line.startswith("E  ")] or lines
    shown = told if len(told) <= FIRST_LINES + LAST_LINES else [*told[:FIRST_LINES], "E   ...", *told[-LAST_LINES:]]
    where = f"FAILED: {report.nodeid} ({getattr(report, 'when', None) or 'when it was collected'})"
    return "".join(f"{line[:FAILURE_WIDTH]}\n" for line in (where, *shown))


@pytest.fixture(scope="session")
def session_dir() -> Iterator[Path]:
    """Below it everything of this session. Short, because the path of a Unix socket may have 107 bytes only."""
    place = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(session_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    roots = [session_dir, tmp_path_factory.getbasetemp()]
    os.environ[leftovers.MARK] = str(session_dir)
    share_ports()
    yield
    forked.end_server()
    processes, mounts = leftovers.settle(str(session_dir), roots), leftovers.left_mounts(roots)
    leftovers.clean(processes, mounts)
    hosts = network.namespaces_of(os.getpid())
    network.remove_namespaces(hosts)
    found = [str(process) for process in processes] + [f"mount: {point}" for point in mounts] + [f"host: {name}" for name in hosts]
    assert not found, "left behind by tests:\n  " + "\n  ".join(found)


@pytest.fixture
def short_dir(session_dir: Path) -> Iterator[Path]:
    """Like tmp_path, with a short name."""
    place = Path(tempfile.mkdtemp(dir=session_dir))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def state_dir(short_dir: Path) -> Path:
    """A state directory for one scheduler, not yet there."""
    return short_dir / "state"


@pytest.fixture
def memory_dir() -> Iterator[Path]:
    """A directory in memory, for data that need not wait for a disk."""
    shared = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="st-", dir=shared if shared.is_dir() else None))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def sshd(short_dir: Path) -> Iterator[Sshd]:
    """An ssh server with a shell."""
    place = short_dir / "sshd"
    place.mkdir(mode=0o700)
    with running_sshd(place) as server:
        yield server


@pytest.fixture
def sftp_only(short_dir: Path) -> Iterator[Sshd]:
    """An ssh server that gives SFTP and no shell."""
    place = short_dir / "sftp"
    place.mkdir(mode=0o700)
    with running_sshd(place, sftp_only=True) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(session_dir: Path) -> Iterator[S3]:
    place = session_dir / "s3"
    place.mkdir()
    with running_s3(place) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3) -> S3:
    """The S3 server of the session; take a bucket of your own from `bucket`."""
    return s3_server


@pytest.fixture
def bucket(s3_server: S3, short_dir: Path) -> str:
    """An empty bucket that no other test knows."""
    return s3_server.make_bucket(f"b{short_dir.name.lower().replace('_', '-')}".strip("-") + "x")


@pytest.fixture
def web(short_dir: Path) -> Iterator[Callable[..., Web]]:
    """`web("location …")` starts nginx, `web(plain=True)` a server that gives no ranges."""
    with contextlib.ExitStack() as stack:
        count = iter(range(1000))
        yield lambda locations="", **how: stack.enter_context(running_web(short_dir / f"web{next(count)}", locations, **how))


@pytest.fixture
def link() -> Iterator[Callable[..., Link]]:
    """`link(port, delay_s=..., bytes_per_s=...)` puts a bad line in front of a server."""
    with contextlib.ExitStack() as stack:
        yield lambda port, **knobs: stack.enter_context(running_link(port, **knobs))


@pytest.fixture
def tiny_disk(short_dir: Path) -> Iterator[Callable[[int], Path]]:
    """`tiny_disk(8)` mounts a file system of 8 MB."""
    with contextlib.ExitStack() as stack:
        count = iter(range(1000))
        yield lambda size_mb: stack.enter_context(mounted_tiny_disk(short_dir / f"disk{next(count)}", size_mb))


@pytest.fixture
def ionode(short_dir: Path) -> Iterator[Callable[..., IoNode]]:
    """`ionode(capacity_bytes=...)` starts the real I/O node on a store of its own, or again on `store=`."""
    started: list[IoNode] = []

    def start(store: Path | None = None, **options: Any) -> IoNode:
        node = IoNode(ionode_binary(), store or short_dir / f"store{len(started)}", **options)
        started.append(node)
        node.start()
        return node

    yield start
    for node in started:
        node.stop()


@pytest.fixture
def net() -> Iterator[network.Network]:
    """Hosts with links of their own: `net.host("lab", wan=Wan(rtt_s=0.03, rate_mbit_s=200))`."""
    network.needs_network()
    with network.Network() as bed:
        yield bed


@pytest.fixture(scope="session")
def pegasus_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workflows and catalogs that Pegasus.api wrote."""
    return written_samples(tmp_path_factory.mktemp("pegasus"))
