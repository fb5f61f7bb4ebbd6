"""Cases with compute hosts: unequal ones, several or none beside a node, jobs of many cores, and hosts that are lost, gone, drained, put
beside another node, and joined.

One rule: everything follows from the seed, as in cases.py.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from msgspec import structs

from stager.model.topology import Host, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.sim.faults import ALL_TROUBLES, HOST_TROUBLES, sampled_faults

# As long as the Machine waits for a host that is silent, and a round of retries beside it.
PATIENCE_S = 200.0


def with_hosts(case: Any, seed: int, troubles: tuple[str, ...] = ()) -> Any:
    """The case on hosts; every job fits one that is there from the beginning, and one of its size takes its place."""
    random = Random(f"hosts/{seed}")
    topology = topology_with_hosts(case.topology, random)
    workflows = [wide(workflow, topology, random) for workflow in case.workflows]
    plans = [make_plan(workflow, topology, spill_origin=plan.spill_origin) for workflow, plan in zip(workflows, case.plans, strict=True)]
    if seed % 4 == 0:
        plans = [at_random(plan, topology, random) for plan in plans]
    if not troubles:
        return replace(case, topology=topology, workflows=workflows, plans=plans)
    horizon_s = 2.0 * sum(plan.makespan_s for plan in plans) + 1.0
    faults = sampled_faults(seed, horizon_s, troubles)
    resumes = int(horizon_s) + 30
    parts = {"topology": topology, "workflows": workflows, "plans": plans, "faults": faults, "resumes_max": resumes}
    return replace(case, slack_s=case.slack_s + PATIENCE_S, **parts)


def topology_with_hosts(topology: Topology, random: Random) -> Topology:
    """Up to three unequal hosts beside each node, at least one in all; memory is watched on some. Some nodes are larger."""
    nodes, number = [], 0
    for node in topology.nodes:
        hosts = []
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            memory_bytes = random.choice((None, None, 8, 32))
            hosts.append(Host(f"host{number}", random.choice((1, 2, 2, 3, 4)), memory_bytes))
            number += 1
        nodes.append(replace(node, hosts=tuple(hosts), capacity_bytes=node.capacity_bytes * random.choice((1, 1, 2, 3))))
    if not number:
        nodes[-1] = replace(nodes[-1], hosts=(Host("host0", random.choice((1, 2, 4))),))
    return replace(topology, nodes=tuple(nodes))


def wide(workflow: Workflow, topology: Topology, random: Random) -> Workflow:
    """Some of its jobs want several cores and memory, as much as some host has."""
    sizes = [host for hosts in topology.hosts for host in hosts]
    jobs = {}
    for name, job in workflow.jobs.items():
        like = random.choice(sizes)
        cores = random.choice((1, 1, like.cores, max(1, like.cores - 1)))
        memory_bytes = random.choice((None, 0, like.memory_bytes))
        jobs[name] = replace(job, cores=cores, memory_bytes=memory_bytes)
    return replace(workflow, jobs=jobs)


def at_random(plan: Plan, topology: Topology, random: Random) -> Plan:
    """With jobs beside any nodes: their hosts are too small, or there are none any more."""
    names = [node.id for node in topology.nodes]
    return replace(plan, jobs=tuple(structs.replace(job, node=random.choice(names)) for job in plan.jobs))


def troubles_of(seed: int) -> tuple[str, ...]:
    """Hosts alone; with nodes, origins and the scheduler in every other case."""
    return (*HOST_TROUBLES, *ALL_TROUBLES) if seed % 2 else HOST_TROUBLES


def none_left(case: Any, seed: int) -> Any:
    """Scratch space is watched, too, and now and then a job is larger than every host: the run fails by name."""
    random = Random(f"too large/{seed}")
    nodes = [
        replace(node, hosts=tuple([replace(host, scratch_bytes=random.choice((None, 300, 3000))) for host in node.hosts]))
        for node in case.topology.nodes
    ]
    topology = replace(case.topology, nodes=tuple(nodes))
    plans = [
        make_plan(workflow, topology, spill_origin=plan.spill_origin) for workflow, plan in zip(case.workflows, case.plans, strict=True)
    ]
    return replace(case, topology=topology, plans=plans, must_succeed=False, resumes_max=min(case.resumes_max, 3))
