"""Throughput and cost of I/O through a buffer in the cloud: the formulas of the founding papers.

May know: nothing but numbers. One rule: a formula stands here once, with its units, and a test reproduces its published figures.
"""

from __future__ import annotations

from math import comb


def throughput(hit_rate: float, inside_bytes_per_s: float, wan_bytes_per_s: float) -> float:
    """Aggregate throughput when the share `hit_rate` of all I/O is served by the buffer; a miss passes the WAN and the inside network. Any
    one unit of bytes.
    """
    if not 0 <= hit_rate <= 1:
        raise ValueError(f"a hit rate is between 0 and 1, not {hit_rate}")
    hits = hit_rate / inside_bytes_per_s
    misses = (1 - hit_rate) / wan_bytes_per_s + (1 - hit_rate) / inside_bytes_per_s
    return 1 / max(hits, misses)


def node_cost(data_bytes: float, bytes_per_s: float, price_per_node_hour: float, nodes: int) -> float:
    """Money for the nodes while the data moves."""
    return data_bytes / bytes_per_s / 3600 * price_per_node_hour * nodes


def sharing_rate(others: int, clients: int, io_nodes: int) -> float:
    """The chance that one client uses its I/O node together with exactly `others` of the other clients, each choosing at random."""
    return comb(clients - 1, others) * (io_nodes - 1) ** (clients - others - 1) / io_nodes ** (clients - 1)


def client_throughput(node_bytes_per_s: float, clients: int, io_nodes: int) -> float:
    """What one of `clients` can expect of `io_nodes`: the closed form of the sum over `sharing_rate(i) / (i + 1)`."""
    return node_bytes_per_s * (io_nodes / clients) * (1 - (1 - 1 / io_nodes) ** clients)


def client_throughput_sum(node_bytes_per_s: float, clients: int, io_nodes: int) -> float:
    """The same as the papers print it; slow, kept as the reference of the closed form."""
    return node_bytes_per_s * sum(sharing_rate(i, clients, io_nodes) / (i + 1) for i in range(clients))


# Of what a replica on every node would give.
ENOUGH = 0.9


def replicas_that_pay(readers: int, io_nodes: int, enough: float = ENOUGH) -> int:
    """The fewest replicas that give `readers` at least this share of what a replica on every node would."""
    if readers <= 1 or io_nodes <= 1:
        return 1
    best = client_throughput(1.0, readers, io_nodes)
    for count in range(1, io_nodes):
        if client_throughput(1.0, readers, count) >= enough * best:
            return count
    return io_nodes


def application_time_s(io_bytes: float, compute_s: float, bytes_per_s: float) -> float:
    """An application that computes and does I/O in turn."""
    return compute_s + io_bytes / bytes_per_s


def staged_time_s(first_bytes: float, local_bytes: float, compute_s: float, wan_bytes_per_s: float, inside_bytes_per_s: float) -> float:
    """The same with I/O nodes (S1: reads of uncached data do not change): what is read for the first time passes the WAN as before, what is
    read again or written the I/O nodes.
    """
    return compute_s + first_bytes / wan_bytes_per_s + local_bytes / inside_bytes_per_s
