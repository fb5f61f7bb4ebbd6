"""What the tests of the provider share. They run inside Airflow's environment: `python -m tests.testbed.airflow pytest tests/airflow`; in
`make test` tests/e2e/test_airflow.py does that.

One rule: connections come from the environment, so that no test writes to Airflow's database for them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager.client import RestClient
from tests.e2e.serve_rig import Service
from tests.testbed.sshd import Sshd, running_sshd

TENANT = """[tenants.t]
native_jobs = true
file_roots = ["{data}"]
"""


@pytest.fixture(scope="module")
def data(session_dir: Path) -> Path:
    """What workflows may name as file: origins."""
    return Path(tempfile.mkdtemp(prefix="d", dir=session_dir))


@pytest.fixture(scope="module")
def service(session_dir: Path, data: Path) -> Iterator[Service]:
    """`stager serve` with one tenant, `t`, on the Python of Airflow's environment."""
    service = Service(Path(tempfile.mkdtemp(dir=session_dir)), TENANT.format(data=data))
    try:
        yield service.start()
    finally:
        service.end()


@pytest.fixture(scope="module")
def token(service: Service) -> str:
    """May submit."""
    return service.token("t", "submit")


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Service | str, str], None]:
    """`connect("stager_default", service, token)`"""

    def make(name: str, service: Service | str, token: str, **extra: str) -> None:
        server = service if isinstance(service, str) else service.url
        fields = {"conn_type": "stager", "host": server, "password": token, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))

    return make


INPUTS = {"region.hdr": b"header\n", "raw/t1.fits": b"one\n" * 50_000, "raw/t2.fits": b"two\n" * 50_000}
AT_THE_LAB = """[tenants.t]
[[tenants.t.origins]]
url = "{url}"
credentials = "key:{key}"
known_hosts = "{known_hosts}"
"""


@pytest.fixture(scope="module")
def lab(session_dir: Path) -> Iterator[Sshd]:
    with running_sshd(Path(tempfile.mkdtemp(dir=session_dir))) as server:
        for name, content in INPUTS.items():
            path = server.data / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            os.utime(path, (1_700_000_000, 1_700_000_000))
        yield server


def at_the_lab(lab: Sshd) -> str:
    """Text of tenants.toml."""
    return AT_THE_LAB.format(url=lab.url(), key=lab.identity_file, known_hosts=lab.known_hosts)


@pytest.fixture(scope="module")
def served(session_dir: Path, lab: Sshd) -> Iterator[Service]:
    """Its tenant has the lab, and may run no programs."""
    storage = ("--storage", "50 MB", "--storage-listen", "127.0.0.1:0")
    service = Service(Path(tempfile.mkdtemp(dir=session_dir)), at_the_lab(lab), storage)
    try:
        yield service.start()
    finally:
        service.end()


@pytest.fixture
def client(served: Service, connect: Callable[..., None]) -> Iterator[RestClient]:
    token = served.token("t", "submit")
    connect("stager_default", served, token)
    with RestClient(served.url, token) as made:
        yield made
