"""The life of the scheduler process: it holds the lock, answers on its socket and, as `stager serve`, over TCP, until it is asked to end.

One rule: SIGTERM or SIGINT interrupts the runs in order (drains), a second one at once; both leave them resumable.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from stager.adapters.private_socket import listen
from stager.adapters.tokens import TokenStore
from stager.client import connect
from stager.model.errors import Refused, Transient
from stager.runtime.clock import SteadyClock
from stager.service.api import make_api
from stager.service.api.activity import Activity
from stager.service.app import Scheduler, opened
from stager.service.lifetime import Lifetime
from stager.service.live_nodes import machine_limits
from stager.service.replaying import replayed
from stager.service.sent_places import SENT
from stager.service.settings import RestSettings, Settings
from stager.service.shutdown import Shutdown
from stager.service.state_dir import LockHeld, StateDir, notices_of, notify_file_of
from stager.service.stores import Stores, open_stores
from stager.service.threads import Threads
from stager.service.watching import Holding, state_dir_gone, watch

if TYPE_CHECKING:
    from stager.service.notifying import Notifier
    from stager.service.reading import Reading
    from stager.service.rest.limits import Limiter
    from stager.service.sent_contents import SentStores

log = logging.getLogger("stager.service")
IDLE_POLL_S = 0.25
SERVER_END_S = 3.0
THREADS_END_S = 3.0
END_TOLD_S, STDERR = 60.0, 2
GIVE_WAY_S, GIVE_WAY_POLL_S = 60.0, 0.2
HEADERS_DEADLINE_S = 15.0
KEEP_ALIVE_S = 75
CONNECTIONS_MAX = 1000
# Of them, those that nobody has shown a good token on.
UNAUTHENTICATED_MAX = 500
SWITCH_S = 0.0005
# The loop stands still meanwhile.
TOKENS_BUSY_S = 0.2


class Server(uvicorn.Server):
    """Signals are ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ProtocolWithTimeouts(H11Protocol):
    """Closes a connection on which no request comes, or on which one begins and does not go on, first or later. Where there are too many
    whom nobody knows, the one that came first makes room for the next: a tenant is one of them until its first request is there.
    """

    deadline: asyncio.TimerHandle | None = None
    is_tenants = is_let_go = False

    # As uvicorn's own protocol narrows it.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.came_at = self.loop.time()
        self.expect()
        if len(self.connections) > UNAUTHENTICATED_MAX:
            self.free_space()

    def is_known(self) -> bool:
        """Whether a good token was seen on it so far: the guard notes on a request whose it is (rest/guard.py)."""
        self.is_tenants = self.is_tenants or bool(self.scope and "caller" in self.scope["state"])
        return self.is_tenants

    def free_space(self) -> None:
        """Of many that come at once none has left yet when the next one does."""
        here = (each for each in self.connections if isinstance(each, ProtocolWithTimeouts) and not each.is_let_go)
        unauthenticated = [each for each in here if not each.is_known()]
        if len(unauthenticated) > UNAUTHENTICATED_MAX:
            oldest = min(unauthenticated, key=lambda each: each.came_at)
            oldest.is_let_go = True
            # Whether or not it takes what it is sent.
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        # The next request has another scope, of which the guard has said nothing yet.
        self.is_known()
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self.expect()
        elif self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def expect(self) -> None:
        """The head of a request, whole."""
        if self.deadline is None:
            self.deadline = self.loop.call_later(HEADERS_DEADLINE_S, self.give_up)

    def give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def hold(settings: Settings, rest: RestSettings | None = None) -> int:
    """Until it has ended; the exit code. Raises LockHeld where another lives already, Refused or Denied where it cannot begin."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    state_dir = StateDir(settings.state_dir)
    state_dir.make()
    os.umask(0o077)
    with state_dir.held(), contextlib.ExitStack() as stack:
        tcp = stack.enter_context(listen_tcp(rest.host, rest.port)) if rest is not None else None
        cluster = stack.enter_context(listen_for_hosts(settings, state_dir)) if settings.cluster_listen is not None else None
        return asyncio.run(serve(settings, state_dir, rest, tcp, cluster))


def hold_as_service(settings: Settings, rest: RestSettings) -> int:
    """As `hold`. A command that asks while a service is started again may have found nobody and started a scheduler: that one gives way."""
    end = time.monotonic() + GIVE_WAY_S
    while True:
        try:
            return hold(settings, rest)
        except LockHeld as problem:
            why = refusal_to_give_way(settings.state_dir)
            if why or time.monotonic() >= end:
                raise LockHeld(f"{problem.message}{why}", code=problem.code, subject=problem.subject) from None
        time.sleep(GIVE_WAY_POLL_S)


def refusal_to_give_way(state_dir: Path) -> str:
    """Empty: it does, or it is only just starting or ending."""
    client = connect(state_dir)
    if client is None:
        return ""
    with client:
        try:
            client.give_way()
        except Refused as problem:
            return f", and {problem.message}"
        except Transient:
            log.info("the scheduler that lives here did not answer")
    return ""


async def serve(
    settings: Settings,
    state_dir: StateDir,
    rest: RestSettings | None,
    tcp: socket.socket | None,
    cluster: socket.socket | None = None,
) -> int:
    beside = [threads := Threads("beside")]
    asyncio.get_running_loop().set_default_executor(threads)
    holding, clock = Holding(state_dir, state_dir.lock_file()), SteadyClock()
    lifetime, stores = Lifetime(clock()), open_stores(state_dir)
    # First of all, since the journal may be folded away.
    notifier = await asyncio.to_thread(notifier_for, settings, state_dir, stores)
    past = await asyncio.to_thread(replayed, stores, machine_limits(settings))
    if notifier is not None:
        notifier.begin(past.machine.state)
    if rest is not None:
        # Workflows of tenants are read on threads beside the scheduler's own, which has to wait for each of them that long.
        sys.setswitchinterval(SWITCH_S)
    scheduler: Scheduler
    # Heard as soon as there is something to be ended; what the service imports takes a while.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: interrupt(scheduler))
    told = (notifier.saw,) if notifier is not None else ()
    scheduler = opened(settings, stores, past, clock, lifetime, is_service=rest is not None, told=told)
    services, activity = scheduler.services, Activity()
    # On a thread, since the node starts meanwhile.
    api = await asyncio.to_thread(make_api, services, lifetime, activity)
    servers = [(local_server(api), listen(state_dir.socket))]
    end_reading: Callable[[], None] | None = None
    with contextlib.ExitStack() as stack:
        if rest is not None and tcp is not None:
            from stager.service.reading import Reading
            from stager.service.rest.limits import Limiter
            from stager.service.sent_contents import SentStores

            tokens = stack.enter_context(contextlib.closing(TokenStore(state_dir.tokens, TOKENS_BUSY_S)))
            reading, limiter = stack.enter_context(contextlib.closing(Reading(settings, scheduler.machine.tenancy))), Limiter()
            end_reading = reading.close
            beside.append(limiter.threads)
            contents = SentStores(state_dir.root / SENT, settings.directory_bytes_max)
            servers.append((rest_server(scheduler, rest, tokens, reading, limiter, contents), tcp))
        rest_servers = [listening for _, listening in servers[1:]]
        if cluster is not None:
            servers.append((stack.enter_context(cluster_server(scheduler, settings, past.epoch, cluster)), cluster))
        scheduler.start("the scheduler", watch(holding, clock.ahead_s))
        serving = [scheduler.start("the API", server.serve(sockets=[listening])) for server, listening in servers]
        if rest is None:
            # A service does not end by itself when nobody needs it.
            scheduler.start("the check for idleness", end_when_idle(services.shutdown, activity, settings.idle_exit_s))
        tell_addresses(state_dir, past.epoch, rest_servers)
        await lifetime.ended.wait()
        code = await end(scheduler, lifetime, holding, [server for server, _ in servers], serving, end_reading)
    if notifier is not None:
        await asyncio.to_thread(notifier.close)
    await leave(beside, code)
    return code


def notifier_for(settings: Settings, state_dir: StateDir, stores: Stores) -> Notifier | None:
    """None: nobody is to be told, and nobody was. Most schedulers tell nobody, and start sooner without this."""
    file, box = settings.notify_file or notify_file_of(state_dir), notices_of(state_dir)
    if settings.notify_file is None and not (file.exists() or box.exists()):
        return None
    from stager.service.notifying import notifier_of

    return notifier_of(file, box, settings.environ, stores.journal)


def interrupt(scheduler: Scheduler) -> None:
    ending = scheduler.services.owner.ending
    ending.interrupt()


def tell_addresses(state_dir: StateDir, epoch: int, listening: list[socket.socket]) -> None:
    log.info("the scheduler of %s is here (pid %d, epoch %d)", state_dir.root, os.getpid(), epoch)
    for each in listening:
        host, port = each.getsockname()[:2]
        log.info("the REST API is at http://%s:%d/api/v1", f"[{host}]" if ":" in host else host, port)


async def end(
    scheduler: Scheduler,
    lifetime: Lifetime,
    holding: Holding,
    servers: list[Server],
    serving: list[asyncio.Task[None]],
    end_reading: Callable[[], None] | None,
) -> int:
    """Closes all. The exit code."""
    # Where it hangs, its log says what each thread was at.
    faulthandler.dump_traceback_later(END_TOLD_S, file=STDERR)
    gone = state_dir_gone(holding)
    failure = gone or lifetime.failure
    # The socket goes first: whoever calls from now on finds nobody and starts the next scheduler, which waits for the lock.
    if gone is None:
        # A disk that fails keeps nothing else from ending.
        with contextlib.suppress(OSError):
            holding.state_dir.socket.unlink(missing_ok=True)
    if end_reading is not None:
        # Who waits for a plan is told while there is somebody to tell it.
        await asyncio.to_thread(end_reading)
    for server in servers:
        server.should_exit = True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SERVER_END_S):
            await asyncio.wait(serving)
    await scheduler.close(stop_node=failure is None, for_good=gone is not None)
    if failure is not None:
        log.error("the scheduler ended: %s", failure)
        return 1
    return 0


async def leave(beside: list[Threads], code: int) -> None:
    """All is closed. A thread that still waits for an origin that says nothing, which may be minutes, does not keep the state directory
    from the next scheduler: Python has no way to end a thread, but with the process.
    """
    waiting = [asyncio.wrap_future(each) for threads in beside for each in list(threads.under_way)]
    if waiting:
        await asyncio.wait(waiting, timeout=THREADS_END_S)
    left = sum(len(threads.under_way) for threads in beside)
    if left:
        log.warning("questions that wait for others are left as they are: %d", left)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)


def local_server(api: Starlette) -> Server:
    return Server(uvicorn.Config(api, ws="none", log_config=None, access_log=False, lifespan="off", timeout_keep_alive=3600))


def rest_server(
    scheduler: Scheduler, settings: RestSettings, tokens: TokenStore, reading: Reading, limiter: Limiter, contents: SentStores
) -> Server:
    # Not every scheduler is a service.
    from stager.service.rest import Reached, make_rest
    from stager.service.rest.contents import sweep_contents, trees_of
    from stager.service.rest.storage import maintain_keys

    machine, node, profiles = scheduler.machine, scheduler.node, scheduler.state_dir.profiles
    if node.objects is not None:
        scheduler.start("the upkeep of keys to objects", maintain_keys(node.objects.issuer, machine.tenancy, tokens))
    needed = partial(machine.inquiry.ask, lambda: trees_of(machine.runs.state, machine.stores.records.all()))
    scheduler.start("the upkeep of what tenants sent", sweep_contents(contents, needed))
    config = uvicorn.Config(
        make_rest(Reached(machine, node, scheduler.services.runs, reading, limiter, profiles, contents), settings, tokens),
        http=ProtocolWithTimeouts,
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        limit_concurrency=CONNECTIONS_MAX,
    )
    return Server(config)


@contextlib.contextmanager
def cluster_server(scheduler: Scheduler, settings: Settings, epoch: int, listening: socket.socket) -> Iterator[Server]:
    # Few services have hosts that join.
    from stager.service.cluster_server import configured
    from stager.service.joined import Joined, told

    node = scheduler.node
    joined = Joined(
        settings,
        scheduler.state_dir,
        epoch,
        node.links,
        lambda source: node.world.add(node.link_to(source)),
        scheduler.machine.inbox.put,
        node.peering,
    )
    scheduler.start("the nodes that have joined", joined.follow())
    scheduler.start("the renewal of the scheduler's certificate", joined.keep_renewed())
    more = {"timeout_keep_alive": KEEP_ALIVE_S, "limit_concurrency": CONNECTIONS_MAX, "server_header": False, "proxy_headers": False}
    with told(scheduler.state_dir, listening):
        yield Server(configured(joined.app, joined.context, ProtocolWithTimeouts, **more))


def listen_for_hosts(settings: Settings, state_dir: StateDir) -> socket.socket:
    """Raises InvalidInput where there is no cluster that they could join."""
    from stager.service.joined import require_cluster

    assert settings.cluster_listen is not None
    require_cluster(state_dir)
    return listen_tcp(*settings.cluster_listen, option="--cluster-listen")


def listen_tcp(host: str, port: int, option: str = "--listen") -> socket.socket:
    """Raises Refused where the address cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(found[4][:2], family=found[0])
    except OSError as problem:
        where = f"{host}:{port}"
        advice = f"another program has it: choose another {option}" if problem.errno == errno.EADDRINUSE else f"choose another {option}"
        raise Refused(f"{where} cannot be listened on ({problem.strerror}); {advice}", code="listen", subject=where) from problem
    listening.setblocking(False)
    return listening


async def end_when_idle(shutdown: Shutdown, activity: Activity, idle_exit_s: float) -> None:
    quiet_since = time.monotonic()
    while True:
        await asyncio.sleep(IDLE_POLL_S)
        if await shutdown.has_active():
            quiet_since = time.monotonic()
        if min(time.monotonic() - quiet_since, activity.idle_s()) >= idle_exit_s:
            log.info("no run is active and nobody called for %g s", idle_exit_s)
            await shutdown.in_order()
