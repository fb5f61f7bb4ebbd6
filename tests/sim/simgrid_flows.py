"""Runs flows over shared links in SimGrid: links and flows as JSON on stdin, when each flow ended as JSON on stdout.

May know: SimGrid as Debian packages it, so it runs under /usr/bin/python3 and imports nothing of ours. One rule: plain max-min sharing:
model CM02 without latency, TCP's window limit and cross traffic, whose defaults would slow every flow down.
"""

from __future__ import annotations

import json
import sys

from simgrid import Actor, Comm, Engine, Host, LinkInRoute, NetZone, this_actor

PLAIN = ("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0")
SPEED_FLOPS = 1e9


def send(index: int, start_s: float, size_bytes: int, ends_s: list[float]) -> None:
    this_actor.sleep_until(start_s)
    Comm.sendto(Host.by_name(f"from{index}"), Host.by_name(f"to{index}"), size_bytes)
    ends_s[index] = Engine.clock


def run(links: dict[str, float], flows: list[tuple[float, list[str], int]]) -> list[float]:
    """Each flow has hosts of its own, so that it shares nothing but the links of its path."""
    engine = Engine(["flows", *(f"--cfg={setting}" for setting in PLAIN)])
    zone = NetZone.create_full_zone("zone")
    made = {name: zone.create_link(name, bytes_per_s).set_latency(0).seal() for name, bytes_per_s in links.items()}
    ends_s = [-1.0] * len(flows)
    for index, (start_s, path, size_bytes) in enumerate(flows):
        source, target = (zone.create_host(f"{side}{index}", SPEED_FLOPS).seal() for side in ("from", "to"))
        zone.add_route(source.netpoint, target.netpoint, None, None, [LinkInRoute(made[name]) for name in path], True)
        Actor.create(f"flow{index}", source, send, index, start_s, size_bytes, ends_s)
    zone.seal()
    engine.run()
    return ends_s


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump(run(asked["links"], asked["flows"]), sys.stdout)
