"""A registry of images on loopback (Debian's docker-registry), filled by skopeo.

May know: their command lines. One rule: never a service of the machine: own port, own directory, own log, gone with the test.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.testbed.places import needed_program
from tests.testbed.processes import HERE, Server

CONFIG = """version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {place}/data}}}}
http: {{addr: "127.0.0.1:{port}"}}
{auth}"""
ASKS_FOR_LOGIN = "auth: {{htpasswd: {{realm: test, path: {place}/users}}}}\n"
# Of a word that no test tells.
USERS = "tester:$2b$04$abcdefghijklmnopqrstuuXZPAmPUBK4BpDM7CEerdzEUok8GUOx.\n"
# Without TLS, as skopeo has to be told.
PLAIN = '[[registry]]\nlocation = "127.0.0.1:{port}"\ninsecure = true\n'


class Registry:
    def __init__(self, place: Path, auth: str = "") -> None:
        self.program, self.skopeo = needed_program("docker-registry", "docker-registry"), needed_program("skopeo", "skopeo")
        place.mkdir()
        self.place, self.auth, self.port = place, auth, HERE.free_port()
        (place / "users").write_text(USERS)
        (place / "config.yml").write_text(CONFIG.format(place=place, port=self.port, auth=auth.format(place=place)))
        self.server = Server([self.program, "serve", str(place / "config.yml")], place / "log")

    def allow_plain(self, home: Path) -> None:
        """To the user of this home."""
        conf = home / ".config" / "containers" / "registries.conf"
        conf.parent.mkdir(parents=True, exist_ok=True)
        with conf.open("a") as stream:
            stream.write(PLAIN.format(port=self.port))

    def name(self, image: str) -> str:
        return f"docker://127.0.0.1:{self.port}/{image}"

    def start(self) -> None:
        self.server.start_on(self.port)

    def push(self, archive: Path, image: str) -> None:
        words = [self.skopeo, "copy", "--quiet", "--dest-tls-verify=false", f"docker-archive:{archive}", self.name(image)]
        done = subprocess.run(words, env=os.environ | {"HOME": str(self.place)}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        self.server.stop()
