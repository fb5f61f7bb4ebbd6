"""stager-transfer against pegasus-transfer over real servers, and with it: the same files, whichever of the two moves them.

One rule: as in test_pegasus_transfer.py. S3 is left out: pegasus-s3 wants boto3, which is not installed for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.testbed.pegasus import Done, listed, ours, pegasus_transfer, snapshot, theirs, transfer, url
from tests.testbed.places import ionode_binary, needed_program
from tests.testbed.sshd import Sshd
from tests.testbed.web import Web

# Calls of pegasus-transfer sleep, and are many: a busy machine takes minutes for one test.
pytestmark = [pytest.mark.xdist_group("pegasus"), pytest.mark.timeout(900)]
ONCE = ("-m", "1", "-n", "1")


@pytest.fixture(autouse=True)
def real() -> None:
    pegasus_transfer()


def both(place: Path, given: Callable[[Path], str], far: Path | None = None, **environ: str) -> tuple[Done, Done]:
    """`given` names a local directory, and below `far` one of the same name. Asserts that they agree."""
    found = {}
    for name, program in (("theirs", theirs), ("ours", ours)):
        root = place / name
        root.mkdir()
        (root / "s").write_bytes(b"source")
        done = program(given(root), root, *ONCE, STAGER_IONODE=str(ionode_binary()), **environ)
        found[name] = (done, snapshot(root), snapshot(far / name) if far else {})
    assert found["ours"][1:] == found["theirs"][1:], f"{found['ours'][0].said}\n{found['theirs'][0].said}"
    assert found["ours"][0].code == found["theirs"][0].code
    return found["theirs"][0], found["ours"][0]


def test_the_web(web: Callable[..., Web], tmp_path: Path) -> None:
    needed_program("curl", "curl")
    server = web()
    (server.data / "f").write_bytes(os.urandom(100_000))

    def given(root: Path) -> str:
        return listed(
            transfer([url(f"{server.url()}/f", "web")], url(root / "d/f")),
            transfer([url(f"{server.url()}/none", "web", priority=2), url(f"{server.url()}/f", "web", priority=1)], url(root / "g")),
        )

    real, _ = both(tmp_path, given)
    assert real.code == 0


@pytest.mark.parametrize("there", [True, False])
def test_scp(sshd: Sshd, tmp_path: Path, there: bool) -> None:
    if there:
        (sshd.data / "f").write_bytes(os.urandom(100_000))
    config = tmp_path / "ssh_config"
    config.write_text(f"Host *\n  UserKnownHostsFile {sshd.known_hosts}\n  IdentityAgent none\n")
    far = f"scp://{sshd.user}@127.0.0.1:{sshd.port}{sshd.data}"

    def given(root: Path) -> str:
        entries = [
            transfer([url(root / "s")], url(f"{far}/{root.name}/deep/s", "lab")),
            transfer([url(f"{far}/f", "lab")], url(root / "d/f")),
        ]
        return listed(*entries)

    setup = {"STAGER_SSH_CONFIG": str(config), "SSH_PRIVATE_KEY": str(sshd.identity_file), "HOME": str(tmp_path)}
    real, _ = both(tmp_path, given, far=sshd.data, **setup)
    assert real.code == (0 if there else 1)


def test_the_real_one_does_what_is_left_to_it(web: Callable[..., Web], tmp_path: Path) -> None:
    """At the same time; both reports are kept, and both ends count."""
    needed_program("curl", "curl")
    server = web()
    (server.data / "f").write_bytes(b"from the web")
    (tmp_path / "s").write_bytes(b"s")
    (tmp_path / "m").mkdir()
    setup = {
        "PEGASUS_TRANSFER_FALLBACK": str(pegasus_transfer()),
        "STAGER_TRANSFER_LEAVES": "http",
        "PEGASUS_MULTIPART_DIR": f"{tmp_path}/m",
    }
    entries = [transfer([url(f"{server.url()}/f", "web")], url(tmp_path / "w")), transfer([url(tmp_path / "s")], url(tmp_path / "l"))]
    done = ours(listed(*entries), tmp_path, *ONCE, **setup)
    assert done.code == 0, done.said
    assert (tmp_path / "w").read_bytes() == b"from the web" and (tmp_path / "l").read_bytes() == b"s"
    attempts = [attempt for path in (tmp_path / "m").iterdir() for attempt in yaml.safe_load(path.read_text())[0]["transfer_attempts"]]
    assert sorted(attempt["dst_url"] for attempt in attempts) == [f"file://{tmp_path}/l", f"file://{tmp_path}/w"]
    entries[0] = transfer([url(f"{server.url()}/none", "web")], url(tmp_path / "n"))
    done = ours(listed(*entries), tmp_path, *ONCE, **setup)
    assert done.code == 1 and "ended with 1" in done.said
