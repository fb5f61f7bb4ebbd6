"""Where the data of a race lie: a bucket or an ssh server behind the line, and how each engine is told of it.

May know: the servers of the test bed. One rule: inputs of a race lie in a directory that nobody writes to; every engine and round has a
directory of its own for finals, and what came there is read at the server itself, not over the line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.race.workflows import LONG_AGO, Race, directories
from tests.testbed.network import Host
from tests.testbed.s3 import S3, running_s3
from tests.testbed.sshd import Sshd, make_key, running_sshd

BUCKET = "race"
KINDS = ("s3", "sftp")
CIPHER = "aes128-gcm@openssh.com"
AT_ONCE = 16


@dataclass
class Site(ABC):
    """`options`: what a workflow of stager says of the origin besides its URL. `env`: credentials of all that runs there."""

    kind: str
    url: str
    options: Mapping[str, object]
    env: Mapping[str, str]
    rclone: Mapping[str, str]
    rclone_root: str

    @abstractmethod
    def lay(self, race: Race) -> None:
        """The inputs, below a directory with the name of the race."""

    @abstractmethod
    def make_directories(self, target: str, finals: Sequence[str]) -> None:
        """The directories of finals, for engines that make none."""

    @abstractmethod
    def sums(self, target: str, finals: Sequence[str]) -> dict[str, str]:
        """sha256 of each final as it lies at the server, or what became of it."""

    @abstractmethod
    def clear(self, target: str) -> None: ...

    @abstractmethod
    def snakemake(self) -> tuple[str, dict[str, object]]:
        """What stands before the path of a file, and the settings of Snakemake's storage."""

    def home(self, place: Path) -> Path:
        """A home directory with what programs look for there."""
        place.mkdir(parents=True, exist_ok=True)
        return place

    def rclone_env(self) -> dict[str, str]:
        return {f"RCLONE_CONFIG_LAB_{name}": value for name, value in self.rclone.items()} | {"RCLONE_CONFIG": "/dev/null"}


@dataclass
class Bucket(Site):
    server: S3
    lab: Host

    def lay(self, race: Race) -> None:
        with self.client() as client:
            for path, source in race.external.items():
                client.put_object(Bucket=BUCKET, Key=f"{race.name}/{path}", Body=source.read_bytes())

    def make_directories(self, target: str, finals: Sequence[str]) -> None:
        """A bucket has no directories."""

    def sums(self, target: str, finals: Sequence[str]) -> dict[str, str]:
        found = {}
        with self.client() as client:
            for path in finals:
                try:
                    body = client.get_object(Bucket=BUCKET, Key=f"{target}/{path}")["Body"]
                    found[path] = hashlib.sha256(body.read()).hexdigest()
                except client.exceptions.NoSuchKey:
                    found[path] = "missing"
        return found

    def clear(self, target: str) -> None:
        with self.client() as client:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{target}/"):
                for entry in page.get("Contents", ()):
                    client.delete_object(Bucket=BUCKET, Key=entry["Key"])

    def snakemake(self) -> tuple[str, dict[str, object]]:
        return f"s3://{BUCKET}/", {"provider": "s3", "endpoint_url": self.server.endpoint}

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """On the server's own host: nothing of it is seen on the line."""
        with self.lab.inside():
            client = self.server.client()
            yield client
            client.close()


@dataclass
class SshServer(Site):
    server: Sshd
    rsa_key: Path

    def lay(self, race: Race) -> None:
        for path, source in race.external.items():
            there = self.server.data / race.name / path
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, there)
            os.utime(there, LONG_AGO)

    def make_directories(self, target: str, finals: Sequence[str]) -> None:
        for directory in directories(finals):
            (self.server.data / target / directory).mkdir(parents=True, exist_ok=True)

    def sums(self, target: str, finals: Sequence[str]) -> dict[str, str]:
        found = {}
        for path in finals:
            try:
                with (self.server.data / target / path).open("rb") as content:
                    found[path] = hashlib.file_digest(content, "sha256").hexdigest()
            except FileNotFoundError:
                found[path] = "missing"
        return found

    def clear(self, target: str) -> None:
        shutil.rmtree(self.server.data / target, ignore_errors=True)

    def snakemake(self) -> tuple[str, dict[str, object]]:
        """Its stock limit of one request a second would be all that is measured."""
        there = f"sftp://{self.server.where.address}:{self.server.port}{self.server.data}/"
        return there, {"provider": "sftp", "username": self.server.user, "max_requests_per_second": 1000}

    def home(self, place: Path) -> Path:
        ssh = super().home(place) / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.server.known_hosts, ssh / "known_hosts")
        # The one kind of key that Snakemake's plugin takes.
        shutil.copy(self.rsa_key, ssh / "id_rsa")
        return place


def bucket(lab: Host, server: S3) -> Bucket:
    with lab.inside():
        server.client().create_bucket(Bucket=BUCKET)
    env = server.credentials() | {"AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": server.region}
    options = {"endpoint": server.endpoint, "region": server.region, "allow_http": True, "addressing": "path"}
    rclone = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": server.endpoint, "ACCESS_KEY_ID": server.access_key}
    rclone |= {"SECRET_ACCESS_KEY": server.secret_key, "REGION": server.region, "FORCE_PATH_STYLE": "true"}
    return Bucket("s3", f"s3://{BUCKET}", options, env, rclone, BUCKET, server, lab)


def ssh_server(place: Path, server: Sshd) -> SshServer:
    config = place / "ssh_config"
    config.write_text(server.ssh_config_text("lab") + f"  Ciphers {CIPHER}\n  BatchMode yes\n")
    rsa_key = make_key(place / "rsa_key", "rsa")
    server.allow(rsa_key)
    rclone = {"TYPE": "sftp", "HOST": server.where.address, "PORT": str(server.port), "USER": server.user}
    rclone |= {"KEY_FILE": str(server.identity_file), "KNOWN_HOSTS_FILE": str(server.known_hosts), "CIPHERS": CIPHER, "CHUNK_SIZE": "255Ki"}
    env = {"STAGER_SSH_CONFIG": str(config)}
    return SshServer("sftp", f"sftp://lab{server.data}", {}, env, rclone, str(server.data), server, rsa_key)


@contextlib.contextmanager
def site_of(kind: str, lab: Host, place: Path, memory: Path) -> Iterator[Site]:
    """What is behind the line lies in memory there: its disk is not measured."""
    own, data = place / kind, memory / kind
    own.mkdir(mode=0o700)
    if kind == "s3":
        data.mkdir()
        with running_s3(data, where=lab) as bucket_server:
            yield bucket(lab, bucket_server)
    else:
        with running_sshd(own, data, where=lab) as server:
            yield ssh_server(own, server)
