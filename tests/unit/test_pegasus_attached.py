"""stager-transfer where something answers in the scheduler's place that is no scheduler, and the files it is given.

One rule: the exit code and the files are those without stager.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pegasus_stager.attached import Attached
from pegasus_stager.failures import Failed
from pegasus_stager.local_files import UMASK, take_file
from pegasus_stager.log import Log

from tests.testbed.pegasus import listed, ours, transfer, url

VIEW = {"state": "staged", "inputs": [], "outputs": []}


def answer(body: object, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}".encode()


STRANGE = {
    "nothing": b"",
    "no HTTP": b"hello\n",
    "no JSON": b"HTTP/1.1 200 OK\r\n\r\n<html>",
    "a list": answer([1]),
    "an error without words": answer({}, "500 Internal Server Error"),
    "a refusal": answer({"error": {"class": "refused", "code": "no_space_node", "message": "too small"}}, "409 Conflict"),
    "no state": answer({"inputs": []}),
    "inputs of another form": answer({**VIEW, "inputs": [{"name": "f"}]}),
    "a file that is not there": answer({**VIEW, "inputs": [{"lfn": "f", "path": "/none/at/all"}]}),
    "a call that is over": answer({**VIEW, "state": "refused", "fault": {"message": "nobody made it"}}),
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
}


@pytest.fixture
def someone(short_dir: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Answers all questions alike."""
    place = short_dir / "socket"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(place))
    listening.listen()

    def serve() -> None:
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line:
                line.recv(1 << 16)
                line.sendall(request.param)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield place
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(10)


def attached(place: Path, someone: Path, **more: object) -> dict[str, str]:
    word = place / "stager-attached.json"
    word.write_text(json.dumps({"format": 1, "uuid": "u", "run": "r", "socket": str(someone), "stage_out": [], **more}))
    word.chmod(0o600)
    return {"PEGASUS_DAG_JOB_ID": "stage_in", "PEGASUS_WF_UUID": "u", "_PEGASUS_WF_SUBMIT_DIR": str(place)}


@pytest.mark.slow
@pytest.mark.parametrize("someone", STRANGE.values(), ids=STRANGE.keys(), indirect=True)
@pytest.mark.parametrize("stage_out", [False, True], ids=["in", "out"])
def test_whatever_answers_the_list_is_done(someone: Path, tmp_path: Path, stage_out: bool) -> None:
    (tmp_path / "f").write_bytes(b"content")
    entry = transfer([url(tmp_path / "f")], url(tmp_path / "to" / "f"), lfn="f", linkage="output" if stage_out else "input")
    done = ours(listed(entry), tmp_path, "-m", "1", **attached(tmp_path, someone, stage_out=["stage_in"] if stage_out else []))
    assert done.code == 0, done.said
    assert (tmp_path / "to" / "f").read_bytes() == (tmp_path / "f").read_bytes() == b"content"
    assert done.said.count("WARNING") <= 1 and "Traceback" not in done.said, done.said


@pytest.mark.parametrize("someone", [STRANGE["a refusal"]], indirect=True)
def test_a_list_that_fails_fails_as_without_it(someone: Path, tmp_path: Path) -> None:
    entry = transfer([url(tmp_path / "none")], url(tmp_path / "to"), lfn="f", linkage="input")
    done = ours(listed(entry), tmp_path, "-m", "1", **attached(tmp_path, someone))
    assert done.code == 1 and done.said.count("WARNING") == 1 and "too small" in done.said


@pytest.mark.parametrize("far", [False, True], ids=["same file system", "another"])
def test_a_copy_that_is_ours_is_taken_with_the_mode_of_a_new_file(tmp_path: Path, memory_dir: Path, far: bool) -> None:
    source, target = (memory_dir if far else tmp_path) / "held", tmp_path / "f"
    for mode in (0o400, 0o500):
        source.write_bytes(b"content")
        source.chmod(mode)
        take_file(str(source), str(target))
        assert target.read_bytes() == b"content"
        assert target.stat().st_mode & 0o777 == (0o777 if mode & 0o100 else 0o666) & ~UMASK
        target.unlink()
    target.write_bytes(b"old")
    target.chmod(0o600)
    source.unlink(missing_ok=True)
    source.write_bytes(b"new")
    inode = source.stat().st_ino
    take_file(str(source), str(target))
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o600)
    assert far or (target.stat().st_ino == inode and not source.exists())
    with pytest.raises(Failed):
        take_file(str(tmp_path / "none"), str(target))
    assert target.read_bytes() == b"new" and [path for path in os.listdir(tmp_path) if path.startswith(".")] == []


def test_what_was_superseded_at_its_place_is_not_sent_there_by_other_means(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    attached_to = Attached("", {"PEGASUS_DAG_JOB_ID": "stage_out"}, Log())
    ledger = {"files": [{"lfn": "f", "state": "superseded", "fault": "f was changed there since"}]}
    attached_to.scheduler = SimpleNamespace(get=lambda path, **query: ledger)  # type: ignore[assignment]
    attached_to.at_home(SimpleNamespace(lfn="f", destination="sftp://lab/f"))  # type: ignore[arg-type]

    assert "f was changed there since" in capfd.readouterr().err
