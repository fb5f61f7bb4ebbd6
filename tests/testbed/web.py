"""Real web servers on free ports, on loopback or on a host of the bed: nginx, which does all that a good one does, and Python's: no ranges.

May know: nginx's configuration. One rule: never a service of the machine: own port, own directory, own log, gone with the test.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.testbed.places import needed_program
from tests.testbed.processes import HERE, Server, Where
from tests.testbed.waiting import wait_until

CONFIG = """\
{user} daemon off; pid {place}/pid; error_log stderr; worker_processes {workers}; events {{ worker_connections 256; }}
http {{
  log_format said '$request_method $status $request_uri'; access_log {place}/access said; default_type application/octet-stream;
  client_body_temp_path {place}/t1; proxy_temp_path {place}/t2; fastcgi_temp_path {place}/t3;
  uwsgi_temp_path {place}/t4; scgi_temp_path {place}/t5;
  server {{
    listen {address}:{port}; listen {address}:{tls_port} ssl; ssl_certificate {place}/server.pem; ssl_certificate_key {place}/server.key;
    root {data};
    {locations}
  }}
}}
"""


@dataclass
class Web:
    """Serves `data`. `locations`: lines of nginx's configuration for what it does besides; `plain`: Python's server instead."""

    directory: Path
    locations: str = ""
    plain: bool = False
    workers: str = "1"
    port: int = 0
    tls_port: int = 0
    where: Where = HERE
    server: Server | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.data = self.directory / "data"
        self.data.mkdir(parents=True)

    def start(self) -> None:
        """On new ports the first time, on the same ones after `stop`."""
        known = self.port, self.tls_port
        for last_try in (False, False, True):
            self.port, self.tls_port = self.port or self.where.free_port(), self.tls_port or self.where.free_port()
            self.server = Server(self.command(), self.directory / "web.log", where=self.where)
            try:
                self.server.start_on(self.port)
                if not self.plain:
                    wait_until(lambda: self.where.answers(self.tls_port), f"nginx on port {self.tls_port}")
                return
            except AssertionError:
                if last_try:
                    raise
                self.port, self.tls_port = known

    def command(self) -> list[str]:
        if self.plain:
            return [sys.executable, "-m", "http.server", "--bind", self.where.address, "--directory", str(self.data), str(self.port)]
        nginx = needed_program("nginx", "nginx-light")
        if not self.ca_file.exists():
            self.make_certificates()
        user = "user root;" if os.getuid() == 0 else ""
        values = {
            "place": self.directory,
            "data": self.data,
            "address": self.where.address,
            "port": self.port,
            "tls_port": self.tls_port,
            "workers": self.workers,
            "locations": self.locations,
        }
        config = self.directory / "nginx.conf"
        config.write_text(CONFIG.format(user=user, **values))
        return [str(nginx), "-p", str(self.directory), "-c", str(config), "-e", "stderr"]

    def make_certificates(self) -> None:
        """An authority nobody knows, and a certificate of its for `localhost`."""
        openssl = str(needed_program("openssl", "openssl"))

        def run(*words: str) -> None:
            subprocess.run([openssl, *words], cwd=self.directory, check=True, capture_output=True, stdin=subprocess.DEVNULL)

        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        run("req", "-x509", *key, "-days", "2", "-subj", "/CN=stager-test-authority", "-keyout", "ca.key", "-out", "ca.pem")
        run("req", *key, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
        (self.directory / "names").write_text("subjectAltName=DNS:localhost\n")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        run("x509", "-req", "-in", "server.csr", *signing, "-out", "server.pem")

    def stop(self) -> None:
        if self.server:
            self.server.stop()
            self.server = None

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    def url(self, port: int | None = None) -> str:
        """Another port for a way through a Link."""
        return f"http://{self.where.address}:{port or self.port}"

    def origin(self) -> dict[str, object]:
        """The body of `PUT /v1/origins/ID` (docs/formats/ionode-api.md)."""
        return {"kind": "http", "base_url": self.url()}

    @property
    def tls_url(self) -> str:
        return f"https://localhost:{self.tls_port}"

    def requests(self, about: str) -> list[str]:
        """`GET 206 /path` of nginx, `"GET /path HTTP/1.1" 200 -` of Python, for each request so far in which this stands."""
        log = self.directory / ("web.log" if self.plain else "access")
        return [line for line in log.read_text(errors="replace").splitlines() if about in line]


@contextlib.contextmanager
def running_web(directory: Path, locations: str = "", *, plain: bool = False, where: Where = HERE) -> Iterator[Web]:
    server = Web(directory, locations, plain, where=where)
    server.start()
    try:
        yield server
    finally:
        server.stop()
