"""Places for boxes and arrows: in layers, each box below (or right of) all that it comes after, with few crossings and straight arrows.

May know: sizes and who comes after whom. One rule: the same picture gets the same places, in time that grows with the number of arrows.

The steps are those of Sugiyama: arrows that close a cycle are turned round, boxes get layers, an arrow that passes a layer gets a place in
it, layers are sorted by the middle of what their members are joined to, and each layer is put as near to that as the sizes allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]
SWEEPS, SWEEPS_OF_MANY, MANY = 24, 3, 2_000
# Where there are so many boxes and places of arrows that pass layers, the other arrows go straight.
CELLS_MAX = 30_000
APART, APART_BENDS = 18.0, 10.0
STRAIGHT = 6.0


@dataclass(frozen=True, slots=True)
class Size:
    """`breadth` along its layer, `depth` from layer to layer."""

    breadth: float
    depth: float


@dataclass(slots=True)
class Cell:
    """A box, or the place of an arrow in a layer that it passes. `up` and `down`: what it is joined to in the layers around it."""

    size: Size
    is_box: bool
    layer: int
    up: list[int]
    down: list[int]
    place: float = 0.0


@dataclass(frozen=True, slots=True)
class Layout:
    """`middles` of the boxes, and the `routes` of the arrows: from the edge of one box through points to the edge of the other; and where
    each label has its middle. All in (along a layer, from layer to layer).
    """

    middles: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    labels: tuple[Point | None, ...]
    breadth: float
    depth: float


def layout(boxes: Sequence[Size], arrows: Sequence[tuple[int, int]], labels: Sequence[Size | None], gap: float) -> Layout:
    """`gap`: between layers. A label has a layer of its own between those of boxes."""
    turned = turned_arrows(len(boxes), arrows)
    joined = [(end, start) if back else (start, end) for (start, end), back in zip(arrows, turned, strict=True)]
    step = 2 if any(label is not None for label in labels) else 1
    layers = layers_of(len(boxes), joined)
    cells = [Cell(size, True, layer * step, [], []) for size, layer in zip(boxes, layers, strict=True)]
    chains = [chain_of(cells, start, end, label) for (start, end), label in zip(joined, labels, strict=True)]
    rows = sorted_rows(cells)
    put(cells, rows)
    return drawn(cells, rows, len(boxes), chains, turned, labels, gap)


def widest(count: int, arrows: Sequence[tuple[int, int]]) -> int:
    """How many boxes the fullest layer has."""
    turned = turned_arrows(count, arrows)
    layers = layers_of(count, [(end, start) if back else (start, end) for (start, end), back in zip(arrows, turned, strict=True)])
    return max(Counter(layers).values(), default=0)


def turned_arrows(count: int, arrows: Sequence[tuple[int, int]]) -> list[bool]:
    """Those that lead back to where a search from the first boxes is at."""
    after: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for number, (start, end) in enumerate(arrows):
        after[start].append((end, number))
    turned, state = [False] * len(arrows), [0] * count
    for first in range(count):
        way = [(first, iter(after[first]))] if not state[first] else []
        state[first] = state[first] or 1
        while way:
            at, rest = way[-1]
            for end, number in rest:
                if state[end] == 1:
                    turned[number] = True
                elif not state[end]:
                    state[end] = 1
                    way.append((end, iter(after[end])))
                    break
            else:
                state[at] = 2
                way.pop()
    return turned


def layers_of(count: int, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """The longest way to each from the first; those that come after nothing stand just before what comes after them."""
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for start, end in arrows:
        after[start].append(end)
        missing[end] += 1
    firsts = [box for box in range(count) if not missing[box]]
    layers, order = [0] * count, list(firsts)
    for box in order:
        for end in after[box]:
            layers[end] = max(layers[end], layers[box] + 1)
            missing[end] -= 1
            if not missing[end]:
                order.append(end)
    for box in firsts:
        layers[box] = min([layers[end] for end in after[box]], default=1) - 1
    return layers


def chain_of(cells: list[Cell], start: int, end: int, label: Size | None) -> list[int]:
    """The cells of an arrow, from box to box, with one for its label in the middle."""
    first, last = cells[start].layer, cells[end].layer
    between = range(first + 1, last)
    chain = [start]
    if len(between) and len(cells) + len(between) <= CELLS_MAX:
        middle = between[len(between) // 2]
        # Labels stand in the layers between boxes.
        labelled = middle if middle % 2 else middle - 1
        for layer in between:
            size = label if label is not None and layer == labelled else Size(0.0, 0.0)
            cells.append(Cell(size, False, layer, [], []))
            chain.append(len(cells) - 1)
    chain.append(end)
    for above, below in zip(chain, chain[1:], strict=False):
        cells[above].down.append(below)
        cells[below].up.append(above)
    return chain


def sorted_rows(cells: Sequence[Cell]) -> list[list[int]]:
    """The layers, each in an order of few crossings: the best of what some sweeps come to."""
    rows: list[list[int]] = [[] for _ in range(max((cell.layer for cell in cells), default=-1) + 1)]
    for number in first_order(cells):
        rows[cells[number].layer].append(number)
    best, fewest = [list(row) for row in rows], crossings(cells, rows)
    for sweep in range(SWEEPS_OF_MANY if len(cells) > MANY else SWEEPS):
        if not fewest:
            break
        at = [0.0] * len(cells)
        for row in rows:
            number_row(row, at)
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            middles = {cell: middle(cells[cell].up if down else cells[cell].down, at, at[cell]) for cell in row}
            row.sort(key=middles.__getitem__)
            number_row(row, at)
        count = crossings(cells, rows)
        if count < fewest:
            best, fewest = [list(row) for row in rows], count
    return best


def first_order(cells: Sequence[Cell]) -> list[int]:
    """From the first box on, each followed by what comes after it: what belongs together stands together."""
    seen, order = [False] * len(cells), []
    for first in range(len(cells)):
        if cells[first].up or seen[first]:
            continue
        waiting = [first]
        while waiting:
            number = waiting.pop()
            if not seen[number]:
                seen[number] = True
                order.append(number)
                waiting.extend(reversed(cells[number].down))
    return order


def number_row(row: Sequence[int], at: list[float]) -> None:
    for place, cell in enumerate(row):
        at[cell] = (place + 0.5) / len(row)


def middle(joined: Sequence[int], at: Sequence[float], own: float) -> float:
    return sum([at[cell] for cell in joined]) / len(joined) if joined else own


def crossings(cells: Sequence[Cell], rows: Sequence[Sequence[int]]) -> int:
    """Counted in n log n with a tree of sums."""
    found = 0
    for row, below in zip(rows, rows[1:], strict=False):
        place = {cell: number for number, cell in enumerate(below)}
        tree, passed = [0] * (len(below) + 1), 0
        for cell in row:
            ends = sorted([place[end] for end in cells[cell].down if end in place])
            for end in ends:
                number, smaller = end + 1, 0
                while number:
                    smaller += tree[number]
                    number &= number - 1
                found += passed - smaller
            for end in ends:
                number = end + 1
                while number < len(tree):
                    tree[number] += 1
                    number += number & -number
                passed += 1
    return found


def put(cells: Sequence[Cell], rows: Sequence[Sequence[int]]) -> None:
    """Sets places along the layers: first one beside the other, then each as near as it can be to the middle of what it is joined to."""
    for row in rows:
        settle(cells, row, [0.0] * len(row), [1.0] * len(row))
    sweeps = SWEEPS_OF_MANY if len(cells) > MANY else SWEEPS
    for sweep in range(sweeps + 1):
        last = sweep == sweeps
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted, weights = [], []
            for number in row:
                cell = cells[number]
                joined = [*cell.up, *cell.down] if last else cell.up if sweep % 2 == 0 else cell.down
                # A long arrow is to be straight, which matters more than where the box stands that it comes from.
                pulls = [1.0 if cell.is_box or cells[other].is_box else STRAIGHT for other in joined]
                total = sum(pulls)
                pulled = sum([pull * cells[other].place for pull, other in zip(pulls, joined, strict=True)])
                wanted.append(pulled / total if total else cell.place)
                weights.append(total or 0.1)
            settle(cells, row, wanted, weights)


def settle(cells: Sequence[Cell], row: Sequence[int], wanted: Sequence[float], weights: Sequence[float]) -> None:
    """The places of a row that keep its order and what lies between its members, with the least sum of squares of what they are off."""
    offsets, offset = [], 0.0
    for before, cell in zip([None, *row[:-1]], row, strict=True):
        if before is not None:
            one, other = cells[before], cells[cell]
            offset += (one.size.breadth + other.size.breadth) / 2 + (APART if one.is_box and other.is_box else APART_BENDS)
        offsets.append(offset)
    blocks: list[tuple[float, float, int]] = []
    for want, off, weight in zip(wanted, offsets, weights, strict=True):
        mean, mass, count = want - off, weight, 1
        while blocks and blocks[-1][0] > mean:
            former, weighs, members = blocks.pop()
            mean = (mean * mass + former * weighs) / (mass + weighs)
            mass, count = mass + weighs, count + members
        blocks.append((mean, mass, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    for cell, mean, off in zip(row, means, offsets, strict=True):
        cells[cell].place = mean + off


def drawn(
    cells: Sequence[Cell],
    rows: Sequence[Sequence[int]],
    boxes: int,
    chains: Sequence[Sequence[int]],
    turned: Sequence[bool],
    labels: Sequence[Size | None],
    gap: float,
) -> Layout:
    left = min([cell.place - cell.size.breadth / 2 for cell in cells], default=0.0)
    right = max([cell.place + cell.size.breadth / 2 for cell in cells], default=0.0)
    middles_of_rows, depths, top = [], [], 0.0
    for row in rows:
        depths.append(max([cells[cell].size.depth for cell in row], default=0.0))
        middles_of_rows.append(top + depths[-1] / 2)
        top += depths[-1] + gap

    def at(cell: int) -> Point:
        return cells[cell].place - left, middles_of_rows[cells[cell].layer]

    ports = ports_of(cells, boxes, chains)
    routes, spots = [], []
    for number, chain in enumerate(chains):
        points = []
        for end, cell, side in ((0, chain[0], 1), (-1, chain[-1], -1)):
            along, across = at(cell)
            points.append((along + ports[number, end], across + side * cells[cell].size.depth / 2))
        # Straight past the boxes of a layer, so that it touches none.
        passed = [(at(cell), depths[cells[cell].layer] / 2) for cell in chain[1:-1]]
        points[1:1] = [(along, across + side * half) for (along, across), half in passed for side in (-1, 1)]
        spot = next((at(cell) for cell in chain[1:-1] if cells[cell].size.breadth), None)
        if spot is None and labels[number] is not None:
            spot = ((points[0][0] + points[-1][0]) / 2, (points[0][1] + points[-1][1]) / 2)
        routes.append(tuple(reversed(points)) if turned[number] else tuple(points))
        spots.append(spot)
    return Layout(tuple(at(box) for box in range(boxes)), tuple(routes), tuple(spots), right - left, max(0.0, top - gap))


def ports_of(cells: Sequence[Cell], boxes: int, chains: Sequence[Sequence[int]]) -> dict[tuple[int, int], float]:
    """How far from the middle of a box's edge each arrow ends there, by its number and end (0, -1): in the order of where they go."""
    ends: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for number, chain in enumerate(chains):
        ends.setdefault((chain[0], 0), []).append((cells[chain[1]].place, number))
        ends.setdefault((chain[-1], -1), []).append((cells[chain[-2]].place, number))
    found = {}
    for (box, end), those in ends.items():
        each = min(14.0, cells[box].size.breadth * 0.8 / len(those))
        for place, (_, number) in enumerate(sorted(those)):
            found[number, end] = (place - (len(those) - 1) / 2) * each
    return found
