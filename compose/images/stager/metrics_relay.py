"""Answers GET /metrics over TCP with what the I/O node of this container says: metrics_relay.py SOCKET TOKEN_FILE PORT.

One rule: it asks the node for its metrics and for nothing else. A node that speaks TLS shows them to the scheduler alone, and a
certificate that may read them may do everything.
"""

from __future__ import annotations

import http.client
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DEADLINE_S = 10.0


class NodeConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("node", timeout=DEADLINE_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self.path)


class Relay(BaseHTTPRequestHandler):
    timeout = DEADLINE_S
    node_socket, token_file = "", Path()

    def do_GET(self) -> None:
        if self.path != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            status, kind, body = self.asked()
        except (OSError, http.client.HTTPException) as problem:
            self.send_error(HTTPStatus.BAD_GATEWAY, f"the node does not answer ({type(problem).__name__})")
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def asked(self) -> tuple[int, str, bytes]:
        connection = NodeConnection(self.node_socket)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.token_file.read_text().strip()}"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type") or "text/plain", answer.read()
        finally:
            connection.close()

    def log_message(self, *_: object) -> None:
        """Prometheus asks every few seconds."""


Relay.node_socket, Relay.token_file = sys.argv[1], Path(sys.argv[2])
ThreadingHTTPServer(("0.0.0.0", int(sys.argv[3])), Relay).serve_forever()
