"""What hosts of a pool keep for later jobs: `stager gc` removes it there, by the workers, and names a host that is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.worker.place import write_json
from tests.e2e.hosts_rig import Hosts
from tests.e2e.made_bed import GATE
from tests.testbed.images import docker_archive, programs
from tests.testbed.pool import Host

pytestmark = pytest.mark.slow
BOXED = """
stager: 1
name: boxed
on_exists: replace
jobs:
  boxed:
    foreach: {number: 1..2}
    run: 'GATE; cat /etc/of-the-image > {number}.txt'
    shell: sh
    container: here:tools.tar
    outputs: {"{number}.txt": "here:out/"}
"""


@pytest.fixture
def hosts(short_dir: Path) -> Iterator[Hosts]:
    made = Hosts(short_dir, {"h1": 1, "h2": 1})
    yield made
    made.end()


def images(host: Host) -> list[Path]:
    return list(host.scratch.glob("images/sha256-*"))


def changed_environment(host: Host) -> Path:
    """Not what was made there."""
    root = host.scratch / "environments" / "odd"
    root.mkdir(parents=True)
    (root / "program").write_bytes(b"x" * 10_000)
    write_json(str(root / "environment.json"), {"digest": "of something else"})
    return root


def told(hosts: Hosts, *words: str) -> dict[str, Any]:
    return {host["host"]: host for host in hosts.rig.stager.json("gc", *words)["hosts"]}


def test_gc_reaches_what_hosts_keep_and_names_a_host_that_is_away(hosts: Hosts, short_dir: Path) -> None:
    hosts.client()
    hosts.until(lambda: {name: state for name, (state, _) in hosts.seen().items()} == {"h1": "open", "h2": "open"}, "both hosts")
    docker_archive(short_dir / "tools.tar", programs("sh", "cat", "sleep", "test"), {"etc/of-the-image": b"it is\n"})
    (short_dir / "boxed.yml").write_text(BOXED.replace("GATE", GATE))
    stager = hosts.rig.stager
    stager.run("submit", "boxed.yml", "--detach", cwd=short_dir)
    h1, h2 = (hosts.pool.hosts[name] for name in ("h1", "h2"))
    begun = [hosts.until(lambda host=host: begun_on(host), f"the job on {host.name}") for host in (h1, h2)]
    odd = [changed_environment(host) for host in (h1, h2)]
    planned = told(hosts, "--cache", "--dry-run")
    assert {name: (host["images"], host["environments"], host["problem"]) for name, host in planned.items()} == dict.fromkeys(
        ("h1", "h2"), (0, 1, "")
    ), "the images are in use"
    assert all(host["left_bytes"] > 100_000 and host["freed_bytes"] > 0 for host in planned.values()) and all(each.exists() for each in odd)
    for [sandbox] in begun:
        (sandbox / "go").touch()
    stager.run("wait", "boxed")
    assert {path.read_text() for path in (short_dir / "out").iterdir()} == {"it is\n"}

    h2.server.stop()
    done = stager.run("gc", "--cache")
    assert "removed on host h1 1 image and 1 environment of packages: " in done.stdout and not images(h1) and not odd[0].exists()
    assert "nothing was heard of what host h2 keeps: " in done.stderr and "call gc again when it answers" in done.stderr
    assert len(images(h2)) == 1 and odd[1].exists()

    hosts.add("h2", 1)
    hosts.until(lambda: told(hosts)["h2"]["problem"] == "", "the host to answer")
    assert len(images(h2)) == 1 and not odd[1].exists(), "gc alone removes what was changed"
    assert told(hosts, "--cache")["h2"]["images"] == 1 and not images(h2)


def begun_on(host: Host) -> list[Path]:
    return [path.parent for path in host.scratch.glob("attempts/*/sandbox/begun")]
