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
    apart: int = (io_nodes - 1) ** (clients - others - 1)
    choices: int = io_nodes ** (clients - 1)
    return comb(clients - 1, others) * apart / choices


def client_throughput(node_bytes_per_s: float, clients: int, io_nodes: int) -> float:
    """The throughput that one of `clients` can expect of `io_nodes`: the closed form of the sum over `sharing_rate(i) / (i + 1)`."""
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


# A kernel that is asked for a little of a file reads on by so much (its default for FUSE), which crosses the WAN too.
READ_AHEAD_BYTES = 128 * 1024
# Of reads that do not go on where the last one ended each is a round trip; programs read at least so much at a time (stdio reads 4 KiB,
# Python 8 to 128 KiB). Few bytes, so that what jumps about is read directly only where it touches little.
JUMP_BYTES = 16 * 1024


def direct_bytes(size_bytes: int, touched_fraction: float, reads_per_byte: float) -> int:
    """The bytes that cross the WAN for one job that reads a file at its origin: each byte that it touches, as often as it reads it (nothing
    of it is kept), and not less than a kernel reads at once.
    """
    least = min(size_bytes, READ_AHEAD_BYTES)
    return round(max(least, size_bytes * touched_fraction * max(1.0, reads_per_byte)))


def direct_s(moved_bytes: int, sequential_fraction: float, bytes_per_s: float, latency_s: float) -> float:
    """How long a job stands still for that: a round trip to open it and one for its first bytes, what it reads in order at the rate that
    one reader gets (S1: under 20 MB/s where the line had 135), the rest a round trip for each jump.
    """
    jumping = bytes_per_s if latency_s <= 0 else min(bytes_per_s, JUMP_BYTES / latency_s)
    return 2 * latency_s + moved_bytes * (sequential_fraction / bytes_per_s + (1 - sequential_fraction) / jumping)
