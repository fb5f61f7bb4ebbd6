"""Jobs with conda packages of a lock file, by real processes and from a real channel: made once whatever is killed, and nothing of a
package runs before a job does.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stager.model.errors import Transient
from stager.worker import conda_channels
from stager.worker.place import TOLD
from tests.e2e.made_bed import PackagesBed
from tests.testbed.conda_packages import PLACEHOLDER, Channel, Content, Package, explicit
from tests.testbed.places import PROJECT
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.xdist_group("conda-environments")
LIBC = platform.libc_ver()[1]
PYTHON = f"""#!/bin/sh
PYTHONPATH={PLACEHOLDER}/lib/python3.11/site-packages exec {sys.executable} "$@"
"""


def tool(version: str = "1.0", **more: Any) -> Package:
    """A program that names its own place, a binary that does, and what conda does when it is activated."""
    files = {
        "bin/tool": Content(f'#!/bin/sh\necho {version} {PLACEHOLDER} "$@"\n'.encode(), True, "text"),
        "bin/tool-too": Content(target="tool"),
        "lib/tool.bin": Content(b"\x7fELF\0" + PLACEHOLDER.encode() + b"/share\0the end\0", False, "binary"),
        "etc/conda/activate.d/tool.sh": Content(b'echo noise; read line; export TOOL_HOME="$CONDA_PREFIX/share"; set -- lost\n'),
        "etc/conda/env_vars.d/tool.json": Content(b'{"TOOL_DATA": "data", "TOOL_OWN": "of the package"}'),
    }
    return Package(name="tool", version=version, files=files, **more)


def fake_python() -> Package:
    """That of these tests, under the name and at the place of conda's."""
    files = {"bin/python3.11": Content(PYTHON.encode(), True, "text"), "bin/python3": Content(target="python3.11")}
    return Package(name="python", version="3.11.4", files=files, hard=".tar.bz2")


def module() -> Package:
    """A noarch package of Python, which any version of it can have."""
    link = {"noarch": {"type": "python", "entry_points": ["probe = probe:main"]}, "package_metadata_version": 1}
    files = {"site-packages/probe.py": Content(b'import sys\n\ndef main():\n    print("probed by", sys.argv[0])\n')}
    info = {"info/link.json": json.dumps(link).encode()}
    return Package(name="probe", subdir="noarch", index={"noarch": "python"}, depends=("python",), files=files, info=info)


class Bed(PackagesBed):
    def __init__(self, place: Path) -> None:
        super().__init__(place, "conda")
        self.channel = Channel(place / "channel")

    def fault(self, text: str, **more: str) -> tuple[str, str, str]:
        said = self.said(self.lock("fault.lock", text), **more)["fault"]
        return said["error_class"], said["code"], said["message"]


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    place = session_dir / "conda"
    place.mkdir()
    made = Bed(place)
    yield made
    made.stager.end()
    made.channel.close()


USE = """
defaults: {conda: here:own.lock}
jobs:
  text: {run: "tool $TOOL_HOME > text.txt; env > env.txt", outputs: {text.txt: "here:out/", env.txt: "here:out/"}}
  words: {run: [tool-too, a b, c], stdout: words.txt, outputs: {words.txt: "here:out/"}}
  given:
    run: "cat; echo $TOOL_OWN"
    env: {TOOL_OWN: mine}
    stdin: in.txt
    inputs: [here:in.txt]
    stdout: given.txt
    outputs: {given.txt: "here:out/"}
  python: {run: "probe", stdout: python.txt, outputs: {python.txt: "here:out/"}}
  shell: {run: "import probe; print(probe.__file__)", shell: [python3, -c], stdout: shell.txt, outputs: {shell.txt: "here:out/"}}
  write: {run: 'touch "$CONDA_PREFIX/new" 2>&1 || true', stdout: write.txt, outputs: {write.txt: "here:out/"}}
  host: {run: "if command -v tool; then exit 9; fi; echo ${CONDA_PREFIX:-none} > host.txt", conda: none, outputs: {host.txt: "here:out/"}}
"""


def test_all_jobs_of_a_lock_file_have_one_environment_and_an_edit_runs_exactly_these_again(bed: Bed) -> None:
    bed.lock("own.lock", bed.channel.locked(tool(), fake_python(), module()))
    bed.lock("in.txt", "given\n")
    bed.submitted("use", USE, "--reuse")
    (root,) = bed.made()
    assert bed.out("text.txt") == f"1.0 {root} {root}/share\n" and bed.out("words.txt") == f"1.0 {root} a b c\n"
    assert bed.out("given.txt") == "given\nmine\n", "what is activated reads none of the job's input, prints into none of its output"
    assert bed.out("python.txt") == f"probed by {root}/bin/probe\n"
    assert bed.out("shell.txt") == f"{root}/lib/python3.11/site-packages/probe.py\n"
    assert b"\x7fELF\0" + f"{root}/share".encode() + b"\0the end\0" in (root / "lib/tool.bin").read_bytes().replace(b"\0\0", b"")
    env = dict(line.split("=", 1) for line in bed.out("env.txt").splitlines())
    assert env["PATH"] == f"{root}/bin:/usr/local/bin:/usr/bin:/bin" and env["CONDA_PREFIX"] == env["CONDA_DEFAULT_ENV"] == str(root)
    assert (env["CONDA_SHLVL"], env["TOOL_HOME"], env["TOOL_DATA"]) == ("1", f"{root}/share", "data") and "VIRTUAL_ENV" not in env
    assert re.search("Read-only file system|Permission denied", bed.out("write.txt")) and not (root / "new").exists()
    assert bed.out("host.txt") == "none\n"
    assert sorted(bed.channel.asked) == ["/linux-64/python-3.11.4-0.tar.bz2", "/linux-64/tool-1.0-0.conda", "/noarch/probe-1.0-0.conda"]
    assert not list(root.glob(".*")) and all(os.lstat(path).st_nlink == 1 for path in root.rglob("*") if path.is_file())
    assert "7 of 7 jobs reused" in bed.submitted("use", USE, "--reuse")

    bed.lock("own.lock", bed.channel.locked(tool("2.0"), fake_python(), module()))
    explained = bed.stager.run("plan", "use.yml", "--reuse", "--explain", "text", cwd=bed.place)
    assert re.search(r"conda: \S+ before, \S+ now", explained.stdout + explained.stderr)
    assert "1 of 7 jobs reused" in bed.submitted("use", USE, "--reuse")
    assert bed.out("text.txt").startswith("2.0 ") and len(bed.made()) == 2 and len(bed.channel.asked) == 6
    more = 'jobs: {a: {run: "tool > a.txt", conda: here:own.lock, outputs: {a.txt: "here:out/"}}}\n'
    assert "1 of 1 done" in bed.submitted("more", more) and len(bed.channel.asked) == 6, "a later run uses what is there"


FAIL = """
defaults: {retries: 0}
jobs:
  code: {run: "exit 7", conda: here:scripts.lock}
  fine: {run: "true", conda: here:scripts.lock}
  wish: {run: "true", conda: here:wish.lock}
  digest: {run: "true", conda: here:digest.lock}
"""
WISH = "name: fit\nchannels: [conda-forge]\ndependencies: [python]\n"


def test_what_a_package_would_run_is_left_out_and_a_job_that_fails_says_so(bed: Bed) -> None:
    ran = bed.place / "ran"
    script = Content(f"#!/bin/sh\ntouch {ran}\n".encode(), True)
    named = {f"bin/.{name}.sh": script for name in ("scripted-post-link", "scripted-pre-link", "scripted-pre-unlink")}
    bed.lock("scripts.lock", bed.channel.locked(Package(name="scripted", files=named), tool()))
    bed.lock("wish.lock", WISH)
    bed.lock("digest.lock", re.sub(r"sha256:\w{8}", "sha256:00000000", bed.channel.locked(tool())))
    before = bed.made()
    bed.submitted("fail", FAIL, code=1)
    faults = {job["job"]: str(job) for job in bed.stager.json("jobs", "fail")}
    assert "never runs the post-link scripts of packages, and its environment has scripted with one" in faults["code"]
    assert "done" in faults["fine"] and not ran.exists()
    assert "has no environment to run in: its lock file cannot be used: it is an environment file" in faults["wish"]
    assert "a package has another digest than its lock file says: http://" in faults["digest"]
    shell = bed.stager.run("shell", "fail", "code", "--", "sh", "-c", "tool; echo $TOOL_HOME", cwd=bed.place)
    (root,) = set(bed.made()) - set(before)
    assert shell.stdout == f"1.0 {root}\n{root}/share\n", "a shell in its sandbox has its packages"


def odd(name: str, **more: Any) -> Package:
    return Package(name=name, **more)


def test_what_cannot_be_made_is_told_by_who_must_act_and_leaves_nothing(bed: Bed) -> None:
    before, channel = bed.made(), bed.channel
    whole, small = channel.locked(odd("whole", files={"a": Content(b"a" * 4096)})), odd("small", files={"a": Content(b"a")})
    path = channel.directory / "linux-64/whole-1.0-0.conda"
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    for text in (whole, re.sub("#sha256:[0-9a-f]{64}", f"#{'0' * 32}", whole)):
        kind, code, told = bed.fault(text)
        assert (kind, code) == ("invalid_input", "lock_file_invalid") and "another digest than its lock file says" in told
    lock = channel.locked(small)
    for status, wanted, words in (
        (404, ("invalid_input", "lock_file_invalid"), "/linux-64/small-1.0-0.conda, which is not there"),
        (401, ("denied", "channel_denied"), "wants a login (401)"),
        (503, ("transient", "index_away"), "cannot be asked (503)"),
    ):
        channel.answers["/linux-64/small-1.0-0.conda"] = status
        kind, code, told = bed.fault(lock)
        assert (kind, code) == wanted and words in told
    channel.answers.clear()
    away = lock.replace(channel.url, "http://127.0.0.1:9")
    assert bed.fault(away)[:2] == ("transient", "index_away")
    assert bed.fault(channel.locked(module()))[2].startswith("probe-1.0-0.conda needs python")
    old, new = odd("old", depends=("__glibc >=2.3,<99.0a0", "__cuda >=99")), odd("new", depends=("__glibc >=99",))
    assert bed.fault(channel.locked(old, new))[::2] == ("refused", f"new-1.0-0.conda needs __glibc >=99, and this host has {LIBC}")
    # The archive is what the lock file says, and what is in it is not what it says of itself.
    secret = bed.place / "secret"
    secret.write_text("not for packages\n")
    secret.chmod(0o640)
    reads = odd("reads", files={"d": Content(target=str(bed.place))}, told=[{"_path": "d/secret", "path_type": "hardlink"}])
    writes = (
        odd("writes", files={"d": Content(target=str(bed.place))}),
        odd("more", files={"d/written": Content(b"x")}, depends=("writes",)),
    )
    out = odd("out", files={"a": Content(b"")}, told=[{"_path": "../../../secret", "path_type": "hardlink"}])
    broken = channel.put(odd("broken"))[0]
    broken.write_bytes(b"no archive")
    for text in (channel.locked(reads), channel.locked(*writes), channel.locked(out), explicit(channel.url, [broken])):
        assert bed.fault(text)[:2] == ("invalid_input", "package_unsafe")
    assert (secret.stat().st_nlink, secret.stat().st_mode & 0o777) == (1, 0o640) and not (bed.place / "written").exists()
    assert bed.made() == before


def test_where_packages_come_from_is_a_matter_of_the_host(bed: Bed) -> None:
    package = odd("mirrored", files={"a": Content(b"a")})
    lock = bed.channel.locked(package, kind="md5").replace(bed.channel.url, "https://forge.invalid/main")
    here = f"file://{bed.channel.directory}"
    asked = len(bed.channel.asked)
    wrong = f"https://forge.invalid=http://127.0.0.1:9 https://forge.invalid/main={here}/nowhere"
    kind, code, told = bed.fault(lock, STAGER_CONDA_MIRRORS=wrong)
    assert (kind, code) == ("refused", "package_missing") and "STAGER_CONDA_MIRRORS" in told and "nowhere" not in told
    assert bed.fault(lock, STAGER_CONDA_MIRRORS="forge")[:2] == ("refused", "mirrors_wrong")
    right = bed.said(bed.lock("mirrored.lock", lock), STAGER_CONDA_MIRRORS=f"https://forge.invalid/main={here}")
    assert (Path(right["root_dir"]) / "a").read_bytes() == b"a" and len(bed.channel.asked) == asked
    # The same packages are the same environment, wherever they come from.
    assert bed.said(bed.lock("here.lock", explicit(here, bed.channel.put(package), "md5"))) == right
    other = bed.channel.locked(odd("configured", files={"a": Content(b"a")})).replace(bed.channel.url, "https://forge.invalid/main")
    config = bed.place / "home/.config/rattler/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[mirrors]\n"https://forge.invalid/main" = ["{bed.channel.url}"]\n')
    assert "root_dir" in bed.said(bed.lock("configured.lock", other)) and bed.channel.asked[-1] == "/linux-64/configured-1.0-0.conda"
    config.write_text("mirrors = 1\n")
    assert bed.fault(other.replace("configured-1.0", "other-1.0"))[:2] == ("refused", "rattler_configured_wrong")
    config.unlink()


def test_a_channel_that_stalls_is_left_and_one_that_is_slow_is_not(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conda_channels, "STALL_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/linux-64/a-1-0.conda"
        told = threading.Event()

        def answer() -> None:
            """Slowly for longer than the limit, and never to the end."""
            with server.accept()[0] as line:
                line.recv(65536)
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
                for _ in range(8):
                    line.sendall(b"x")
                    told.wait(0.2)
                told.wait(60)

        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(answer)
            with pytest.raises(Transient, match="sent nothing for 1 s"):
                asyncio.run(conda_channels.fetch(conda_channels.client_of_host(), url, url, bed.place / "stalled"))
            told.set()
            answered.result()
    assert (bed.place / "stalled").read_bytes() == b"x" * 8


def test_a_host_without_the_library_says_what_to_install(bed: Bed) -> None:
    (bed.place / "without/rattler").mkdir(parents=True)
    (bed.place / "without/rattler/__init__.py").write_text("raise ImportError('not here')\n")
    kind, code, told = bed.fault(bed.channel.locked(tool("9.0")), PYTHONPATH=f"{bed.place}/without:{PROJECT}")
    assert (kind, code) == ("refused", "conda_missing") and "pip install 'stager[conda]'" in told


def test_one_is_made_once_whatever_is_killed_and_none_counts_that_was_not_made_to_its_end(bed: Bed) -> None:
    files = {f"share/{number}": Content(os.urandom(1 << 16)) for number in range(200)}
    lock = bed.lock("killed.lock", bed.channel.locked(odd("killed", files=files | tool().files, hard=".tar.bz2")))
    before = set(bed.made())
    first = bed.maker(lock)
    wait_until(lambda: any((path / ".stager-packages").is_dir() for path in set(bed.made()) - before), "an environment to be begun")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (half,) = set(bed.made()) - before
    assert not (half / TOLD).exists()
    asked = len(bed.channel.asked)
    both = [bed.maker(lock), bed.maker(lock)]
    said = [json.loads(each.communicate()[0]) for each in both]
    assert said == [{"root_dir": str(half)}] * 2 and (half / TOLD).exists() and len(bed.channel.asked) - asked == 1
    assert subprocess.run([half / "bin/tool"], capture_output=True, text=True, check=True).stdout == f"1.0 {half}\n"
    assert not (half / ".stager-packages").exists()


def test_gc_removes_what_was_changed_and_what_nobody_uses_and_nothing_else(bed: Bed) -> None:
    lock = bed.lock("gone.lock", bed.channel.locked(odd("gone", files=tool().files)))
    root = Path(bed.said(lock)["root_dir"])
    assert bed.stager.json("gc")["environments"] == 0
    (root / "bin/tool").chmod(0o700)
    (root / "bin/tool").write_text("#!/bin/sh\necho changed\n")
    assert "1 environment of packages" in bed.stager.run("gc", "--dry-run").stdout and root.exists()
    bed.stager.run("gc")
    assert not root.exists() and bed.made()
