"""The bad line of the testbed: what it does to a connection that is just being made."""

from __future__ import annotations

import contextlib
import socket

from tests.testbed.link import Link
from tests.testbed.waiting import wait_until


def test_a_line_that_goes_down_takes_a_connection_with_it_that_is_just_being_made() -> None:
    """It was kept: a test waited for an origin that it had cut off, and that answered."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        nobody_more_is_let_in(server, stack)
        link = Link(server.getsockname()[1])
        stack.callback(link.close)
        link.start()
        client = stack.enter_context(socket.create_connection(("127.0.0.1", link.port), timeout=20))
        wait_until(lambda: link.connections == 1, "the line to call the server")
        link.go_down()
        assert is_over(client)


def nobody_more_is_let_in(server: socket.socket, stack: contextlib.ExitStack) -> None:
    """Whoever calls it from now on waits."""
    while True:
        waiting = stack.enter_context(socket.socket())
        waiting.settimeout(0.2)
        try:
            waiting.connect(server.getsockname())
        except TimeoutError:
            return


def is_over(client: socket.socket) -> bool:
    """The server says nothing, so whatever comes is the end."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
