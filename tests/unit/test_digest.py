"""A digest of a workflow: always the same one, and another when anything is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stager.model.files import Destination, File, FileKind, Location, OnExists, Source
from stager.model.workflow import IoHint, Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.digest import workflow_digest

SOURCE = Source(Location("home", "in/a"), 3, "t1")
FILES = (
    File("a", size_bytes=3, sources=(SOURCE, Source(Location("home", "b"), settled=False)), sha256="0f"),
    File("d", FileKind.DIRECTORY, sources=(Source(Location("home", "d"), site="x", priority=2),), executable=True),
    File("e'é", destination=Destination(Location("home", "out/e"), OnExists.REPLACE)),
)
JOB = Job("j", "t", shell="true", inputs=(JobInput("a", "a"),), outputs=(JobOutput("e'é", "e"),), compute_s=0.1, interpreter=("sh",))
HOME = Origin("home", OriginKind.SFTP, "sftp://lab/data")
WHOLE = Workflow("w", {file.lfn: file for file in FILES}, {"j": JOB}, {"home": HOME}, hints={"t": IoHint("t", 1.0)})


def test_a_workflow_keeps_the_digest_that_its_plans_were_made_with() -> None:
    """Plans and runs of earlier versions hold it: another spelling of the same workflow would make all of them look amended."""
    assert workflow_digest(WHOLE) == "20b479628fbdf8c5761be2f1973a7327"


@pytest.mark.parametrize("sources", [(SOURCE,), (replace(SOURCE, token="t2"), FILES[0].sources[1])])
def test_another_source_makes_another_digest(sources: tuple[Source, ...]) -> None:
    other = replace(WHOLE, files=WHOLE.files | {"a": replace(FILES[0], sources=sources)})
    assert workflow_digest(other) != workflow_digest(WHOLE)


def test_whether_an_input_had_settled_makes_no_other_digest() -> None:
    settled = tuple(replace(source, settled=True) for source in FILES[0].sources)
    assert workflow_digest(replace(WHOLE, files=WHOLE.files | {"a": replace(FILES[0], sources=settled)})) == workflow_digest(WHOLE)
