"""Origins as they are seen from outside: paths with contents and tokens. One rule: contents are names; two files are the same exactly when
their contents' names are.
"""

from __future__ import annotations

from dataclasses import dataclass

from stager.model.ids import digest_of
from stager.model.workflow import Graph, Job, Workflow


@dataclass(frozen=True, slots=True)
class Stored:
    content: str
    size_bytes: int
    token: str
    changed_at: float = 0.0


class SimOrigin:
    """One origin by its URL. While `fault_code` is set, everything asked of it fails with that."""

    __slots__ = ("fault_code", "files", "url", "writes")

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, Stored] = {}
        self.fault_code = ""
        self.writes = 0

    def put(self, path: str, content: str, size_bytes: int, at: float = 0.0) -> Stored:
        self.writes += 1
        stored = self.files[path] = Stored(content, size_bytes, f"w{self.writes};s={size_bytes}", at)
        return stored

    def size_of(self, path: str) -> int:
        """0 for what is not there."""
        stored = self.files.get(path)
        return stored.size_bytes if stored is not None else 0


def external_content(url: str, path: str, token: str) -> str:
    return digest_of("external", url, path, token)


def made_content(job: Job, lfn: str, inputs: list[str], attempt: str = "") -> str:
    """The same job with the same inputs makes the same; with an attempt named, something that only this attempt makes."""
    return digest_of("made", job.id, lfn, attempt, *inputs)


def expected_contents(workflow: Workflow, graph: Graph) -> dict[str, str]:
    """The content that each file of a run has to have, if all its jobs make the same each time."""
    contents: dict[str, str] = {}
    for lfn, file in workflow.files.items():
        if file.is_external:
            source = file.sources[0]
            contents[lfn] = external_content(workflow.origins[source.location.origin].url, source.location.path, source.token or "")
    for job_id in graph.order:
        job = workflow.jobs[job_id]
        inputs = [contents[entry.lfn] for entry in job.inputs]
        for output in job.outputs:
            contents[output.lfn] = made_content(job, output.lfn, inputs)
    return contents
