"""Origins as a workflow names them, over real servers, and an independent eye on what lies there.

May know: the native format, the testbed. One rule: what is seen at an origin is seen by the stock client of its protocol or on its own
disk, never through stager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stager.client import connect
from stager.wire import WaitingView
from tests.testbed.letters import Letters
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

S3_PREFIX = "LAB"


def entry(**options: object) -> str:
    """A mapping of `origins:` in flow style; values are quoted, so a path may hold anything but a quote."""
    return (
        "{"
        + ", ".join(f'{key}: "{value}"' if isinstance(value, str) else f"{key}: {str(value).lower()}" for key, value in options.items())
        + "}"
    )


def ssh_origin(server: Sshd, path: Path, *, kind: str = "sftp", port: int | None = None, **options: object) -> str:
    """Through the Link on `port`, if there is one: its `known_hosts` is then the caller's business."""
    said = {
        "url": f"{kind}://{server.user}@127.0.0.1:{port or server.port}{path}",
        "credentials": f"key:{server.identity_file}",
        "known_hosts": str(server.known_hosts),
    }
    return entry(**(said | options))


def known_hosts_of(server: Sshd, port: int, place: Path) -> Path:
    """The server's host key under the port of a Link."""
    place.write_text(server.known_hosts.read_text().replace(f":{server.port}", f":{port}"))
    return place


def s3_origin(server: S3, bucket: str, prefix: str = "letters", *, port: int | None = None, **options: object) -> str:
    said = {
        "url": f"s3://{bucket}/{prefix}",
        "endpoint": f"http://127.0.0.1:{port or server.port}",
        "allow_http": True,
        "region": server.region,
        "credentials": f"env:{S3_PREFIX}",
    }
    return entry(**(said | options))


def s3_env(server: S3) -> dict[str, str]:
    return {f"{S3_PREFIX}_ACCESS_KEY_ID": server.access_key, f"{S3_PREFIX}_SECRET_ACCESS_KEY": server.secret_key}


@dataclass
class Bucket:
    """A prefix of a bucket through boto3."""

    client: Any
    name: str
    prefix: str = "letters"

    def put(self, path: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"{self.prefix}/{path}", Body=content)

    def put_tree(self, directory: Path) -> None:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(str(path.relative_to(directory)), path.read_bytes())

    def get(self, path: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.name, Key=f"{self.prefix}/{path}")["Body"].read())

    def names(self, below: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=f"{self.prefix}/{below}")
        return sorted(item["Key"].removeprefix(f"{self.prefix}/") for page in pages for item in page.get("Contents", []))

    def delete(self, path: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"{self.prefix}/{path}")

    def take_home(self, directory: Path, below: str = "") -> Path:
        for name in self.names(below):
            place = directory / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self.get(name))
        return directory


def send_finals_to(letters: Letters, name: str, origin: str) -> None:
    """The workflow's finals go to a second origin."""
    text = letters.workflow.read_text().replace("jobs:\n", f"  {name}: {origin}\njobs:\n", 1)
    letters.workflow.write_text(text.replace('"data:out/', f'"{name}:out/').replace("all.txt: data:", f"all.txt: {name}:"))


def methods(ledger: list[Mapping[str, Any]]) -> set[str]:
    """How durable finals were verified."""
    assert {one["state"] for one in ledger} == {"durable"}, ledger
    return {one["verified"] for one in ledger}


def wait_for_bytes(stager: Stager, run: str, *directions: str) -> None:
    """Until a transfer of each direction (a fetch) is on its way and not yet at its end."""
    wanted = set(directions or ("fetch",))
    with wait_until(lambda: connect(stager.state_dir), "the scheduler to answer") as client:
        found = client.run(run)

        def moving() -> bool:
            return wanted <= {each.direction for each in found.status().transfers if 0 < each.bytes_done < each.bytes_total}

        wait_until(moving, f"{sorted(wanted)} to be under way")


def wait_for_waiting(stager: Stager, run: str, since_s: float, deadline_s: float = 100.0) -> WaitingView:
    """Until the run has waited this long for an origin, and says so."""
    with wait_until(lambda: connect(stager.state_dir), "the scheduler to answer") as client:
        found = client.run(run)

        def waited() -> WaitingView | None:
            return next((each for each in found.status().waiting if (each.since_s or 0) >= since_s), None)

        return wait_until(waited, f"the run to wait {since_s} s for an origin", deadline_s, pause_s=0.2)


def wait_for_line(stager: Stager, run: str, lfns: list[str], words: str, deadline_s: float = 120.0) -> None:
    """Until the timeline of one of these files says so."""
    with wait_until(lambda: connect(stager.state_dir), "the scheduler to answer") as client:
        found = client.run(run)
        said = lambda: any(words in line for lfn in lfns for line in found.explain(lfn=lfn).lines)  # noqa: E731
        wait_until(said, f"the timeline of {lfns} to say {words!r}", deadline_s, pause_s=0.1)
