"""Files that go by several names: the same path of the same origin under the same token is one file, however often a workflow names it.

May know: the model. One rule: what is one file to the scheduler (`content_of` of its `entering.py`) is one here, so that nothing of it is
counted twice.
"""

from __future__ import annotations

from stager.model.workflow import Workflow


def first_names(workflow: Workflow) -> dict[str, str]:
    """Of each external file that an earlier one of the workflow is the same as, the name of that one; mostly empty."""
    first: dict[tuple[str, str, str, str], str] = {}
    found: dict[str, str] = {}
    for lfn, file in workflow.files.items():
        if file.sources:
            source, origin = file.sources[0], workflow.origins[file.sources[0].location.origin]
            name = first.setdefault((origin.url, origin.endpoint, source.location.path, source.token or ""), lfn)
            if name != lfn:
                found[lfn] = name
    return found
