"""A real S3 server on a free port, on loopback or on a host of the bed: versitygw over a directory, else moto's server.

May know: where `make setup` put the servers. One rule: every test asks for a bucket of its own; the server may be shared.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.places import program, tool_cache
from tests.testbed.processes import HERE, Server, Where

ACCESS_KEY, SECRET_KEY, REGION = "stager-test-access", "stager-test-secret-Kd83hx", "us-east-1"


@dataclass
class S3:
    """`data` is where versitygw keeps objects as plain files (None for moto)."""

    directory: Path
    kind: str = ""
    port: int = 0
    data: Path | None = None
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    region: str = REGION
    where: Where = HERE
    server: Server | None = field(default=None, repr=False)

    def start(self) -> None:
        """On a new port the first time, on the same one after `stop`."""
        known = self.port
        for last_try in (False, False, True):
            self.port = self.port or self.where.free_port()
            self.server = Server(self.command(), self.directory / "s3.log", env=self.environment(), where=self.where)
            try:
                self.server.start_on(self.port)
                return
            except AssertionError:
                if last_try:
                    raise
                self.port = known

    def command(self) -> list[str]:
        gateway = program("versitygw", tool_cache() / "bin")
        if gateway:
            self.kind, self.data = "versitygw", self.directory / "buckets"
            # Metadata beside the objects, not in extended attributes: those are missing on tmpfs before Linux 6.6.
            sidecar = self.directory / "metadata"
            for place in (self.data, sidecar):
                place.mkdir(exist_ok=True)
            listening = ["--quiet", "--keep-alive", "--port", f"{self.where.address}:{self.port}"]
            return [str(gateway), *listening, "posix", "--sidecar", str(sidecar), str(self.data)]
        moto = program("moto_server", tool_cache() / "moto" / "bin")
        if moto:
            self.kind = "moto"
            return [str(moto), "-H", self.where.address, "-p", str(self.port)]
        pytest.skip("no S3 server: `make setup` builds versitygw where there is go, or installs moto")

    def environment(self) -> dict[str, str]:
        # By environment, not by argument: arguments are seen by every user of the machine.
        return os.environ | {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key, "VGW_REGION": self.region}

    def stop(self) -> None:
        if self.server:
            self.server.stop()
            self.server = None

    @property
    def checks_credentials(self) -> bool:
        """moto lets everybody in."""
        return self.kind == "versitygw"

    @property
    def endpoint(self) -> str:
        return f"http://{self.where.address}:{self.port}"

    def client(self, port: int | None = None) -> Any:
        """boto3 on this server: an independent witness. Another port for a way through a Link."""
        import boto3
        from botocore.config import Config

        config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
        endpoint = f"http://{self.where.address}:{port or self.port}"
        keys = {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        return boto3.client("s3", endpoint_url=endpoint, region_name=self.region, config=config, **keys)

    def make_bucket(self, name: str) -> str:
        self.client().create_bucket(Bucket=name)
        return name

    def origin(self, bucket: str, prefix: str = "", **more: object) -> dict[str, object]:
        """The body of `PUT /v1/origins/ID` for a bucket here (docs/formats/ionode-api.md)."""
        body: dict[str, object] = {
            "kind": "s3",
            "bucket": bucket,
            "prefix": prefix,
            "region": self.region,
            "endpoint": self.endpoint,
            "addressing": "path",
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "session_token": None,
            "allow_http": True,
        }
        return body | more

    def credentials(self) -> dict[str, str]:
        """As environment variables of a submitter."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key, "AWS_REGION": self.region}


@contextlib.contextmanager
def running_s3(directory: Path, where: Where = HERE) -> Iterator[S3]:
    server = S3(directory, where=where)
    server.start()
    try:
        yield server
    finally:
        server.stop()
