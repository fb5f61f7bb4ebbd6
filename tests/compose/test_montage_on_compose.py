"""The cluster in compose/, on a real Docker engine: it comes up as its page says, and Montage makes on it what it makes here, while a node
and a worker are killed. `make test-compose` runs this; it takes more than ten minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stager.readers.native import read
from tests.testbed.engine import Compose, base_image, running_engine
from tests.testbed.places import PROJECT, ionode_binary, needed_program, program, tool_cache
from tests.testbed.processes import free_port
from tests.testbed.serial_run import run_serially
from tests.testbed.waiting import wait_until

MONTAGE = PROJECT / "workflows" / "montage"
ONE_SHOT = {"prepare", "survey"}
DASHBOARD = PROJECT / "compose" / "grafana" / "stager.json"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def laid_out(place: Path) -> None:
    """`make compose-files`, with what is built already."""
    wheels = place / "wheels"
    env = {**os.environ, "STAGER_BINARY": str(ionode_binary())}
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", str(wheels), str(PROJECT)]
    subprocess.run(argv, env=env, check=True, timeout=600)
    server = program("versitygw", tool_cache() / "bin")
    if server is None:
        needed_program("go", "golang")
    (wheel,) = wheels.iterdir()
    named = {"STAGER_WHEEL": str(wheel)} | ({"STAGER_VERSITYGW": str(server)} if server else {})
    subprocess.run([PROJECT / "scripts" / "compose_files.sh"], env=os.environ | named, check=True, timeout=900)


def made_here(place: Path) -> dict[str, str]:
    """The digests of the finals when the workflow runs the plainest way on this machine."""
    made = f"import sys; sys.argv = ['', {str(place / 'survey')!r}]; import make_tiles; make_tiles.main()"
    subprocess.run([sys.executable, "-c", made], cwd=MONTAGE, check=True, timeout=600)
    text = (MONTAGE / "workflow.yml").read_text().replace("survey: file:../../demo-out/survey", f"survey: file:{place}/survey")
    text = text.replace(": here:", ": code:").replace("origins:\n", f"origins:\n  code: file:{MONTAGE}\n")
    (place / "workflow.yml").write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run_serially(read(place / "workflow.yml"), place / "run", {"PATH": path}, to=place / "finals")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (place / "finals").iterdir()}


@pytest.fixture(scope="module")
def compose(session_dir: Path) -> Iterator[Compose]:
    """Built, not up."""
    place = session_dir / "engine"
    place.mkdir()
    laid_out(place)
    with running_engine(place) as engine, base_image(engine, "stager-test-base") as base:
        ports = {"REST_PORT": str(free_port()), "PROMETHEUS_PORT": str(free_port())}
        project = Compose("stagertest", {**engine, "BASE": base, "TAG": "test", "DOCKER_BUILDKIT": "0", **ports})
        try:
            project("build", deadline_s=2400)
            yield project
        finally:
            project.end()


def up(compose: Compose) -> None:
    compose("up", "-d", deadline_s=600)
    for service in compose.services():
        wanted = "exited" if service in ONE_SHOT else "healthy"
        try:
            wait_until(lambda service=service, wanted=wanted: compose.state(service) == wanted, f"{service} to be {wanted}", 180)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{compose('logs', '--tail=30', service)}") from None
    wait_until(lambda: compose.stager("host", "list").count(" open ") == 2, "both workers", 120)


def asked(compose: Compose, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:{compose.env['PROMETHEUS_PORT']}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]


def jobs_of(compose: Compose, run: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(compose.stager("jobs", run, "--json"))
    return told


def done_jobs(compose: Compose, run: str) -> int:
    return sum(job["state"] == "done" for job in jobs_of(compose, run))


def killed(compose: Compose, service: str) -> None:
    """As by the kernel: the engine starts it again, which it does not after `docker kill`."""
    before = compose.containers()[service]
    os.kill(before["State"]["Pid"], signal.SIGKILL)
    wait_until(lambda: compose.containers()[service]["RestartCount"] > before["RestartCount"], f"{service} to be started again")


def test_montage_makes_the_same_bytes_while_a_node_and_a_worker_are_killed(compose: Compose, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as beside:
        here = beside.submit(made_here, tmp_path)
        up(compose)
        unprivileged(compose)
        run = json.loads(compose.stager("submit", "montage/workflow.yml", "--detach", "--json"))["run"]
        wait_until(
            lambda: all(host["attempts"] for host in json.loads(compose.stager("host", "list", "--json"))), "jobs on both hosts", 300
        )
        for count, service in ((15, "io1"), (35, "worker0")):
            wait_until(lambda count=count: done_jobs(compose, run) >= count, f"{count} jobs", 900)
            killed(compose, service)
        compose.stager("wait", run, deadline_s=1500)
        assert done_jobs(compose, run) == 76
        wanted = here.result()
    stored = compose.exec("s3", "bash", "-c", "cd /origin/buckets/results/montage/mosaic && sha256sum *")
    assert dict(reversed(line.split()) for line in stored.splitlines()) == wanted
    watched(compose)
    # All state is in volumes: the cluster goes and comes again.
    compose("down", deadline_s=300)
    up(compose)
    assert [each["state"] for each in json.loads(compose.stager("runs", "--json"))] == ["succeeded"]


def unprivileged(compose: Compose) -> None:
    """No container is root's or has a capability, and no key is in what the engine tells of it."""
    secrets = compose.exec("s3", "cat", "/secrets/access_key"), compose.exec("s3", "cat", "/secrets/secret_key")
    for service, told in compose.containers().items():
        assert not any(secret in json.dumps(told) for secret in secrets), service
        if service in ONE_SHOT:
            continue
        status = Path(f"/proc/{told['State']['Pid']}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert set(fields["Uid"].split()) == {"10001"}, service
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0, service
        assert fields["NoNewPrivs"] == "1", service


def watched(compose: Compose) -> None:
    """Prometheus reads the scheduler and all nodes, takes the rules, and knows what each panel asks for."""
    wait_until(lambda: all(each["health"] == "up" for each in asked(compose, "targets")["activeTargets"]), "all targets")
    assert len(asked(compose, "targets")["activeTargets"]) == 4
    rules = [rule for group in asked(compose, "rules")["groups"] for rule in group["rules"]]
    assert rules and {rule["health"] for rule in rules} == {"ok"}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            found = asked(compose, "query", query=target["expr"])["result"]
            assert found or panel["title"] in {"Jobs of active runs", "Transfers that failed, by code"}, panel["title"]
