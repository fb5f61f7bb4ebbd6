"""A real `stager serve` with runs to look at, and a real headless Chromium that looks at them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from selenium.webdriver.common.keys import Keys

from tests.e2e.browser import DESK, Browser
from tests.e2e.serve_rig import Service, call
from tests.testbed.waiting import wait_until

TENANTS = '[tenants.alice]\nnative_jobs = true\nfile_roots = ["{data}/alice"]\n[tenants.bob]\n'


@dataclass
class Bed:
    service: Service
    data: Path
    token: str
    client: httpx.Client

    def submit(self, text: str) -> str:
        answer = self.client.post("/runs", json={"workflow": text})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run"])

    def ended(self, text: str) -> str:
        run = self.submit(text)
        wait_until(lambda: self.client.get(f"/runs/{run}/wait", params={"timeout_s": 20}).json()["finished"], f"{run} to end", 240)
        return run

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Of what anybody is given."""
        return call("GET", self.service.url + path, headers=headers)

    def gate(self, name: str) -> Path:
        """What jobs wait for that are written so."""
        return self.data / "alice" / f"open-{name}"


@contextmanager
def served(place: Path) -> Iterator[Bed]:
    (place / "data" / "alice" / "in").mkdir(parents=True)
    source = place / "data" / "alice" / "in" / "a"
    source.write_bytes(b"x" * 300_000)
    os.utime(source, (1_700_000_000, 1_700_000_000))
    service = Service(place, TENANTS.format(data=place / "data"))
    token = service.token("alice", "submit")
    try:
        service.start()
        yield Bed(service, place / "data", token, service.client(token))
    finally:
        service.end()


@contextmanager
def signed_in(bed: Bed, window: Browser) -> Iterator[Browser]:
    """At a desk; afterwards nothing went wrong that nobody saw."""
    window.resize(DESK)
    window.open()
    window.run("sessionStorage.clear(); localStorage.clear(); location.hash = ''")
    window.driver.refresh()
    window.errors()
    window.one("#token").send_keys(bed.token, Keys.ENTER)
    window.one("#views")
    yield window
    assert window.errors() == []


def flow(bed: Bed, name: str, jobs: str) -> str:
    return f'stager: 1\nname: {json.dumps(name)}\norigins: {{data: "file:{bed.data}/alice"}}\njobs:\n{jobs}'


def chain(bed: Bed, name: str, *, middle: str = "cat mid > next", gate: str = "") -> str:
    """Three jobs one after the other; the second may wait for a gate."""
    waiting = f"until [ -e {bed.gate(gate)} ]; do sleep 0.05; done; " if gate else ""
    return flow(
        bed,
        name,
        f"""  first: {{type: reads, run: 'cat a a > mid', inputs: {{a: 'data:in/a'}}, outputs: [mid]}}
  second: {{type: waits, run: '{waiting}{middle}', inputs: [mid], outputs: [next]}}
  third: {{type: writes, run: 'cat next > end', inputs: [next], outputs: {{end: 'data:out/{name.split()[0].strip("<")}'}}}}
""",
    )


def figure(seen: Browser, name: str) -> str:
    return seen.text(f'[data-figure="{name}"] dd')


def box(seen: Browser, name: str) -> str:
    """The classes of a box of the graph, of which one is its state, as soon as that is known."""

    def known() -> str:
        found = str(seen.one(f'.box[data-name="{name}"]').get_attribute("class"))
        return found if found != "box" else ""

    return str(seen.until(known, f"the state of {name}"))
