"""The content that a recorded task read, where a name stands for more than one: files changed in place, and names written again.

May know: recorded tasks and their order. One rule: a task reads what its nearest ancestor wrote under the name; with no such ancestor,
what was there before, if it comes before the writer, else what the writer made.
"""

from __future__ import annotations

from stager.model.workflow import topological_order
from stager.readers.wfcommons_formats import Task


class Lineage:
    """The order of tasks by the recorded edges of both ends."""

    def __init__(self, tasks: list[Task]) -> None:
        """Raises CycleFound."""
        above: dict[str, dict[str, None]] = {task.id: dict.fromkeys(task.parents) for task in tasks}
        for task in tasks:
            for child in task.children:
                above[child][task.id] = None
        self.parents = {task: tuple(words) for task, words in above.items()}
        children: dict[str, list[str]] = {task.id: [] for task in tasks}
        for child, parents in self.parents.items():
            for parent in parents:
                children[parent].append(child)
        self.position = {task: place for place, task in enumerate(topological_order(self.parents, children))}
        self.known: dict[str, frozenset[str]] = {}

    def is_before(self, first: str, second: str) -> bool:
        """True when `second` could only start after `first` had ended."""
        if self.position[first] >= self.position[second]:
            return False
        if second not in self.known:
            self.known[second] = frozenset(self.ancestors(second))
        return first in self.known[second]

    def ancestors(self, task: str) -> set[str]:
        found: set[str] = set()
        waiting = [task]
        while waiting:
            fresh = [parent for parent in self.parents[waiting.pop()] if parent not in found]
            found.update(fresh)
            waiting.extend(fresh)
        return found


def split_versions(tasks: list[Task], lineage: Lineage) -> tuple[dict[str, str], list[str]]:
    """Gives each content its own name, in the tasks themselves. Returns new name -> recorded name, and what is wrong."""
    writers: dict[str, list[str]] = {}
    for task in tasks:
        for name in task.outputs:
            writers.setdefault(name, []).append(task.id)
    for chain in writers.values():
        chain.sort(key=lineage.position.__getitem__)
    wrong = [
        f"file {name!r} is written by {first!r} and by {second!r}, and neither waits for the other"
        for name, chain in writers.items()
        for first, second in zip(chain, chain[1:], strict=False)
        if not lineage.is_before(first, second)
    ]
    if wrong:
        return {}, wrong
    old_reads = reads_of_older(tasks, writers, lineage)
    renamed: dict[str, str] = {}
    taken = set(writers) | {name for task in tasks for name in task.inputs}
    fresh = {key: fresh_name(*key, taken, renamed) for key in sorted({*old_reads.values(), *rewrites(writers)})}
    for task in tasks:
        task.inputs = [fresh[old_reads[task.id, name]] if (task.id, name) in old_reads else name for name in task.inputs]
        task.outputs = [fresh.get((name, writers[name].index(task.id) + 1), name) for name in task.outputs]
    return renamed, []


def rewrites(writers: dict[str, list[str]]) -> list[tuple[str, int]]:
    """All but the last content under a name that is written more than once."""
    return [(name, number) for name, chain in writers.items() for number in range(1, len(chain))]


def reads_of_older(tasks: list[Task], writers: dict[str, list[str]], lineage: Lineage) -> dict[tuple[str, str], tuple[str, int]]:
    """(task, name) -> (name, number) for each read of a content that is not the last: 0 was there before the workflow."""
    older = {}
    for task in tasks:
        for name in task.inputs:
            chain = writers.get(name)
            if not chain or (len(chain) == 1 and lineage.position[chain[0]] < lineage.position[task.id]):
                continue
            number = content_read(task.id, chain, lineage)
            if number < len(chain):
                older[task.id, name] = (name, number)
    return older


def content_read(reader: str, chain: list[str], lineage: Lineage) -> int:
    """The number of the content, counted from 1; 0 is what was there before."""
    behind = [number for number, writer in enumerate(chain, 1) if lineage.is_before(writer, reader)]
    if behind:
        return behind[-1]
    possible = [number for number, writer in enumerate(chain, 1) if writer != reader and not lineage.is_before(reader, writer)]
    return possible[-1] if possible else 0


def fresh_name(name: str, number: int, taken: set[str], renamed: dict[str, str]) -> str:
    fresh = f"{name}@{number}"
    while fresh in taken:
        fresh += "@"
    taken.add(fresh)
    renamed[fresh] = name
    return fresh
