"""How often a client of the REST API sends a call, and what it makes of answers that say: not now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from stager import rest
from stager.client import AsyncRestClient, RestClient, calls
from stager.model.errors import InvalidInput, Transient

ENDED = {"run": "w-1", "finished": True, "state": "succeeded"}
EVENT = {"seq": 7, "at": 0.0, "run": "w-1", "kind": "fetch", "text": "x"}
Answer = Callable[[httpx.Request], httpx.Response]


def busy(request: httpx.Request) -> httpx.Response:
    body = rest.Problem(type="x", title="x", status=503, detail="it is ending; ask again", code="draining", fix="ask again")
    return httpx.Response(503, content=body.model_dump_json())


def away(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody there", request=request)


def wrong(request: httpx.Request) -> httpx.Response:
    return httpx.Response(422, content=rest.Problem(type="x", title="x", status=422, detail="no", code="bad", fix="no").model_dump_json())


def told(*events: tuple[str, dict[str, object]]) -> Answer:
    text = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in events)
    return lambda request: httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})


def cut(request: httpx.Request) -> httpx.Response:
    """In the middle of the stream."""

    def lines() -> Iterator[bytes]:
        yield f"event: fetch\ndata: {json.dumps(EVENT)}\n\n".encode()
        raise httpx.ReadError("the line broke", request=request)

    class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            return lines()

        async def __aiter__(self):  # type: ignore[no-untyped-def]
            for line in lines():
                yield line

    return httpx.Response(200, stream=Broken())


@pytest.fixture(params=["sync", "async"])
def follow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The kinds of the events that a client tells of which is answered so, and the ids that it went on from."""
    monkeypatch.setattr(calls, "PAUSE_S", 0.001)
    monkeypatch.setattr(calls, "PATIENT_PAUSE_MAX_S", 0.001)

    def play(answers: list[Answer], seen: list[str]) -> list[str]:
        def answer(asked: httpx.Request) -> httpx.Response:
            seen.append(asked.headers["last-event-id"])
            return (answers.pop(0) if len(answers) > 1 else answers[0])(asked)

        transport = httpx.MockTransport(answer)
        if request.param == "sync":
            client = RestClient("http://x", "t")
            client.http = httpx.Client(transport=transport, base_url="http://x/")
            return [event.kind for event in client.run("w-1").follow()]

        async def all_of_them() -> list[str]:
            client = AsyncRestClient("http://x", "t")
            client.http = httpx.AsyncClient(transport=transport, base_url="http://x/")
            return [event.kind async for event in client.run("w-1").follow()]

        return asyncio.run(all_of_them())

    return play


def test_who_follows_a_run_is_told_nothing_of_a_service_that_ends_and_is_started_again(follow: Callable[..., list[str]]) -> None:
    seen: list[str] = []
    answers = [busy, cut, *[away] * 20, busy, told(), told(("finish_run", EVENT | {"seq": 9, "kind": "finish_run"}), ("end", ENDED))]
    assert follow(answers, seen) == ["fetch", "finish_run"]
    assert seen[0] == "0" and set(seen[2:]) == {"7"}, "it goes on where the line broke"


def test_who_follows_a_run_is_told_in_the_end_that_nobody_is_there(
    follow: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PATIENCE_S", 0.05)
    with pytest.raises(Transient, match="http://x does not answer"):
        follow([away], [])
    with pytest.raises(Transient, match="it is ending"):
        follow([busy], [])
    with pytest.raises(InvalidInput, match="no"):
        follow([wrong], [])
