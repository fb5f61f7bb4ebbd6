"""The project's own workflows, to be run in a place of one's own.

May know: where they lie. One rule: a copy, so that what a run writes lands beside it and never in the project.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.testbed.places import PROJECT

WORKFLOWS = PROJECT / "workflows"
# Jobs find this Python, which has what the workflows need, before any other.
JOB_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def copied_workflow(name: str, place: Path) -> Path:
    """The workflow file of the copy. Its origin is `place`/demo-out, as the project's is demo-out beside workflows/."""
    shutil.copytree(WORKFLOWS, place / "workflows", ignore=shutil.ignore_patterns("__pycache__"))
    return place / "workflows" / name / "workflow.yml"
