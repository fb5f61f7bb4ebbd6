"""The way to a tenant's buckets: asks the service where they are, keeps the key fresh, and makes and lists buckets.

May know: stager.client, obstore, httpx. One rule: the key and the token are in no message and no representation.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import httpx
import obstore
from obstore.store import S3Store

from stager import rest
from stager.client import RestClient
from stager.client.proxies import goes_direct, mounts_for
from stager.fs.failures import NAME_WRONG, NO_KEY, Unreachable, key_gone, unreached
from stager.fs.listing import Page, page_of, question, quoted, signed
from stager.model.errors import Denied, StagerError, Transient

if TYPE_CHECKING:
    from obstore.store import S3Credential

# With so much left of it at the latest a key is replaced, a short-lived one at half its time.
REFRESH_S = 600.0
SIGNED_FOR = timedelta(minutes=5)
CALL_DEADLINE_S = 30.0
THREADS_MAX = 32
BODY_DEADLINE, CONNECT_DEADLINE = timedelta(minutes=10), timedelta(seconds=10)
# A node that was killed is there again within seconds; longer than that nobody waits in an `open`.
RETRIES: Any = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 3},
}
# The only way to keep obstore from the proxies of the environment: one of its own, for no host.
NO_PROXY = {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": "*,0.0.0.0/0,::/0"}
GONE = (404,)
# The node's only reason to call a HEAD of a bucket bad, which has no body, is its name.
NONE_SUCH = (*GONE, 400)
CREATED_BEFORE = (409,)


class Forks:
    """The threads that obstore works on are not there in a process that is forked off, where its calls would wait for ever."""

    def __init__(self) -> None:
        self.used = self.lost = False
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.lost = self.lost or self.used

    def use(self) -> None:
        """Raises RuntimeError, as fsspec does of file systems that were carried over a fork."""
        if self.lost:
            text = "stager:// was used before this process was forked off, and cannot be used in both"
            raise RuntimeError(
                f"{text}; start processes by spawn or forkserver (multiprocessing.get_context), or use it in one of them only"
            )
        self.used = True


FORKS = Forks()


class ServiceAccess:
    """Of one service, as one token's tenant. Asked on any thread."""

    def __init__(self, server: str, token: str) -> None:
        FORKS.use()
        self.server, self._token = server, token
        self._lock = threading.RLock()
        self._given: rest.Storage | None = None
        self._until = self._end = 0.0
        self._http: httpx.Client
        self.threads = ThreadPoolExecutor(THREADS_MAX, "stager-fs")
        self._stores: dict[str, S3Store] = {}
        self._there: set[str] = set()
        # Buckets with something in them that has no name here: it is said once.
        self.strange: set[str] = set()

    def _now(self) -> rest.Storage:
        """Raises what Python has for files."""
        with self._lock:
            if self._given is None or time.monotonic() >= self._until:
                given = asked(self.server, self._token)
                if self._given is None or given.endpoint != self._given.endpoint:
                    self._stores.clear()
                    self._http = httpx.Client(timeout=CALL_DEADLINE_S, mounts=mounts_for(given.endpoint))
                now = time.monotonic()
                self._given, self._end = given, now + given.expires_in_s
                self._until = now + max(given.expires_in_s / 2, given.expires_in_s - REFRESH_S)
            return self._given

    def forget(self) -> None:
        """After a call that found nobody: the node may be elsewhere now."""
        with self._lock:
            self._until = 0.0

    def _key(self) -> S3Credential:
        """As obstore asks for it. Its end is told by this machine's clock, which need not be the service's."""
        with self._lock:
            given = self._now()
            end = datetime.now(UTC) + timedelta(seconds=self._end - time.monotonic())
        return {
            "access_key_id": given.access_key_id,
            "secret_access_key": given.secret_access_key,
            "token": None,
            "expires_at": end,
        }

    def known(self, bucket: str) -> S3Store | None:
        """Without waiting for anybody."""
        fresh = self._given is not None and time.monotonic() < self._until
        return self._stores.get(bucket) if fresh else None

    def store(self, bucket: str) -> S3Store:
        FORKS.use()
        with self._lock:
            given = self._now()
            if bucket not in self._stores:
                self._stores[bucket] = self._made(bucket, given)
            return self._stores[bucket]

    def _made(self, bucket: str, given: rest.Storage, **more: Any) -> S3Store:
        """All that the AWS variables of the environment could say otherwise is said."""
        client: Any = {"allow_http": given.endpoint.startswith("http://"), "timeout": BODY_DEADLINE, "connect_timeout": CONNECT_DEADLINE}
        client |= NO_PROXY if goes_direct(given.endpoint) else {}
        said: dict[str, Any] = {"virtual_hosted_style_request": False, "skip_signature": False} | more
        return S3Store(
            bucket,
            endpoint=given.endpoint,
            region=given.region,
            client_options=client,
            retry_config=RETRIES,
            credential_provider=self._key,
            **said,
        )

    def _url(self, method: Any, bucket: str) -> str:
        """Of a bucket, or of all."""
        # With the bucket's name in the host, as it is taken to be, the address without a path is that of all buckets.
        store = self.store(bucket) if bucket else self._made("all", self._now(), virtual_hosted_style_request=True)
        return obstore.sign(store, method, "", SIGNED_FOR)

    def _ask(self, method: Any, bucket: str, url: Callable[[], str] | None = None) -> httpx.Response:
        """Asks for things that obstore does not speak of, by URLs that are signed for each try."""
        end = time.monotonic() + CALL_DEADLINE_S
        while True:
            try:
                address = url() if url is not None else self._url(method, bucket)
                answer = self._http.request(method, address)
            except httpx.TransportError as problem:
                self.forget()
                if time.monotonic() >= end:
                    raise unreached(f"stager://{bucket}") from problem
            else:
                if answer.status_code == 403:
                    self.forget()
                if answer.status_code != 503 or time.monotonic() >= end:
                    return answer
            time.sleep(0.2)

    def buckets(self) -> list[tuple[str, datetime]]:
        """Names and when they were made."""
        answer = self._ask("GET", "")
        refuse(answer, "")
        root = ElementTree.fromstring(answer.content)
        space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
        found = root.iter(f"{space}Bucket")
        return [
            (each.findtext(f"{space}Name") or "", datetime.fromisoformat(each.findtext(f"{space}CreationDate") or "")) for each in found
        ]

    def page(self, bucket: str, prefix: str, **more: Any) -> Page:
        """A part of what is in a bucket, by the words of listing.question."""
        FORKS.use()

        def url() -> str:
            given = self._now()
            return signed(f"{given.endpoint}/{bucket}/", question(prefix, **more), given)

        answer = self._ask("GET", bucket, url)
        refuse(answer, bucket)
        return page_of(answer.content)

    def link(self, bucket: str, key: str, method: str, seconds: int) -> str:
        """A URL for who has no token. Raises ValueError where it would outlive the key that it is signed by, also a fresh one."""
        FORKS.use()
        with self._lock:
            given = self._now()
            if seconds > self._end - time.monotonic():
                self.forget()
                given = self._now()
            left = int(self._end - time.monotonic())
        if not 1 <= seconds <= left:
            raise ValueError(f"a URL cannot be good for {seconds} s: the key that signs it ends in {left} s; ask for 1 to {left}")
        return signed(f"{given.endpoint}/{bucket}/{quoted(key)}", {}, given, method, seconds)

    def has(self, bucket: str) -> bool:
        answer = self._ask("HEAD", bucket)
        if answer.status_code in NONE_SUCH:
            return False
        refuse(answer, bucket)
        return True

    def make(self, bucket: str) -> bool:
        """False: it was there."""
        answer = self._ask("PUT", bucket)
        if answer.status_code not in CREATED_BEFORE:
            refuse(answer, bucket)
        self._there.add(bucket)
        return answer.status_code not in CREATED_BEFORE

    def is_there(self, bucket: str) -> bool:
        """As far as is known without asking."""
        return bucket in self._there

    def ensure(self, bucket: str) -> None:
        """Before the first thing is written to it."""
        FORKS.use()
        if bucket not in self._there:
            self.make(bucket)

    def remove(self, bucket: str) -> None:
        self._there.discard(bucket)
        refuse(self._ask("DELETE", bucket), bucket)


def asked(server: str, token: str) -> rest.Storage:
    try:
        with RestClient(server, token) as client:
            return client.storage()
    except Denied as problem:
        raise PermissionError(problem.message) from problem
    except Transient as problem:
        raise Unreachable(problem.message) from problem
    except StagerError as problem:
        raise OSError(problem.message) from problem


def refuse(answer: httpx.Response, bucket: str) -> None:
    """Raises what Python has for it."""
    if answer.is_success:
        return
    text = answer.text
    said = text.partition("<Message>")[2].partition("</Message>")[0] or f"the I/O node answered {answer.status_code}"
    if answer.status_code in GONE:
        raise FileNotFoundError(f"stager://{bucket}: {said}")
    if NAME_WRONG in text:
        raise ValueError(f"{bucket!r} is no name of a bucket; take 3 to 63 lower-case letters, digits, dots and hyphens")
    if NO_KEY in text:
        raise key_gone(f"stager://{bucket}")
    if answer.status_code == 403:
        raise PermissionError(f"stager://{bucket}: {said}")
    raise OSError(f"stager://{bucket}: {said}")
