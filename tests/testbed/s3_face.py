"""The S3 endpoint of a real I/O node, and the clients of others that speak to it.

May know: the node's options, where `make setup` put the clients. One rule: what is seen is seen by stock clients or on the node's own disk.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.testbed.ionode import IoNode
from tests.testbed.places import ionode_binary, needed_program, tool_cache
from tests.testbed.processes import free_port

ACCESS_KEY, SECRET_KEY, REGION = "stager-face-access", "stager-face-secret-Jq72ms0x", "us-east-1"
SHARE_BYTES = 2_000_000_000


@dataclass(frozen=True)
class Answered:
    """What came back, as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Of an error."""
        return ElementTree.fromstring(self.body).findtext("Code", "") if self.body else ""


def at_once(
    connection: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> http.client.HTTPResponse:
    """Head and one chunk in one piece: a node that refuses the head may hang up before it is sent the rest."""
    said = {"Host": f"{connection.host}:{connection.port}", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    connection.connect()
    connection.sock.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    answer = http.client.HTTPResponse(connection.sock, method=method)
    answer.begin()
    return answer


class S3Face:
    """A node with an S3 endpoint. `start` again after `kill` or `stop` is a restart on the same port."""

    def __init__(self, directory: Path, share_bytes: int = SHARE_BYTES, options: Sequence[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.store, self.share_bytes = directory, directory / "store", share_bytes
        self.port, self.options = 0, list(options)
        self.key_file = directory / "s3-key.json"
        self.key_file.write_text(json.dumps({"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}))
        self.key_file.chmod(0o600)
        self.node = IoNode(ionode_binary(), self.store)

    def start(self) -> None:
        chosen = self.port
        for last_try in (False, False, True):
            self.port = chosen or free_port()
            said = ["--s3-listen", f"127.0.0.1:{self.port}", "--s3-credentials", str(self.key_file), "--s3-share", str(self.share_bytes)]
            self.node.options = said + self.options
            try:
                self.node.start()
                return
            except AssertionError as error:
                if last_try or "listening on" not in str(error):
                    raise

    def kill(self) -> None:
        self.node.kill()

    def stop(self) -> None:
        self.node.stop()

    def metric(self, name: str, **labels: str) -> float:
        """One of the node's own; 0 where it was never counted."""
        said = ",".join(f'{key}="{value}"' for key, value in labels.items())
        line = f"stager_node_{name}" + (f"{{{said}}}" if said else "")
        found = [text.rsplit(" ", 1) for text in self.node.call("GET", "/metrics").text.splitlines()]
        return next((float(value) for key, value in found if key == line), 0.0)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, secret: str = SECRET_KEY, access: str = ACCESS_KEY, **config: Any) -> Any:
        import boto3
        from botocore.config import Config

        said: dict[str, Any] = {"retries": {"max_attempts": 1}, "s3": {"addressing_style": "path"}} | config
        keys = {"aws_access_key_id": access, "aws_secret_access_key": secret}
        return boto3.client("s3", endpoint_url=self.endpoint, region_name=REGION, config=Config(**said), **keys)

    def asked(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        region: str = REGION,
        chunked: bool = False,
        auth: type[S3SigV4Auth] = S3SigV4Auth,
        change: Callable[[AWSRequest], None] = lambda asked: None,
    ) -> Answered:
        """A request as no SDK of ours would send it. `chunked`: without Content-Length. `change`: after signing."""
        asked = AWSRequest(method, self.endpoint + path, dict(headers or {}), data=body)
        if asked.headers.get("Content-Encoding") == "aws-chunked" and "X-Amz-Trailer" in asked.headers:
            asked.context["checksum"] = {"request_algorithm": {"in": "trailer"}}
        auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", region).add_auth(asked)
        change(asked)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            said = dict(asked.headers.items())
            if chunked:
                answer = at_once(connection, method, path, said, body)
            else:
                connection.request(method, path, body, said)
                answer = connection.getresponse()
            return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def environment(self) -> dict[str, str]:
        """For the clients of others; nothing of the caller's own S3 settings reaches them."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        mine = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_DEFAULT_REGION": REGION, "HOME": str(home)}
        mine |= {"AWS_ENDPOINT_URL": self.endpoint, "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "2"}
        mine |= {"RCLONE_CONFIG_NODE_TYPE": "s3", "RCLONE_CONFIG_NODE_PROVIDER": "Other", "RCLONE_CONFIG_NODE_ENV_AUTH": "true"}
        mine |= {"RCLONE_CONFIG_NODE_ENDPOINT": self.endpoint, "RCLONE_CONFIG_NODE_REGION": REGION}
        return kept | mine

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """A client's program; the caller judges how it ended."""
        return subprocess.run([str(part) for part in argv], env=self.environment(), capture_output=True, text=True, timeout=240)

    def done(self, *argv: str | Path) -> str:
        """As `run`; it must succeed."""
        ended = self.run(*argv)
        assert ended.returncode == 0, f"{argv}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout


def client_program(name: str) -> Path:
    """Of the environment that `make setup` made for the S3 clients that are written in Python."""
    found = tool_cache() / "s3clients" / "bin" / name
    if not found.is_file():
        pytest.skip(f"{found} is not there: `make setup` installs the S3 clients of the tests")
    return found


def client_python(package: str) -> Path:
    """With a package that an older environment of the clients may lack."""
    found = client_program("python")
    if not list(found.parent.parent.glob(f"lib/python*/site-packages/{package}")):
        pytest.skip(f"{found.parent.parent} has no {package}: `make setup` installs the S3 clients of the tests")
    return found


def minio_client() -> Path:
    """A program of another name than Debian's mc; too long to build for `make setup`."""
    found = tool_cache() / "bin" / "mc"
    if not found.is_file():
        pytest.skip(f"{found} is not there: GOBIN={found.parent} go install github.com/minio/mc@latest")
    return found


def rclone() -> Path:
    return needed_program("rclone", "rclone")
