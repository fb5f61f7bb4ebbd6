"""Reads our own format (docs/formats/workflow.md) into a Workflow.

May know: the steps of reading, the OriginAccess port. One rule: nothing has been started when this raises, and what it raises says all
that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stager.model.workflow import Workflow
from stager.ports import ImageAccess, OriginAccess
from stager.readers.graph_check import check_graph
from stager.readers.lines import Findings, Node, compose, read_text
from stager.readers.native_beside import Beside
from stager.readers.native_catalog import Catalog, Listing
from stager.readers.native_expand import Expansion
from stager.readers.native_form import Form
from stager.readers.native_images import IMAGES_ORIGIN, Unasked, entry_of
from stager.readers.native_parse import opened, parse
from stager.readers.native_spec import WorkflowSpec
from stager.readers.resolve import resolve

JOBS_MAX = 100_000


def read(
    path: Path | str,
    *,
    access: OriginAccess | None = None,
    jobs_max: int = JOBS_MAX,
    given: Mapping[str, Node] | None = None,
    beside: Beside | None = None,
    images: ImageAccess | None = None,
) -> Workflow:
    """With access, patterns are listed and every external file has size and token. Without, a workflow that needs no listing is read
    and checked alone. `given`: values of its parameters. `beside`: learns of the other files that are part of its text. `images`:
    asks registries."""
    path = Path(path)
    findings = Findings(str(path))
    spec = parse(
        compose(read_text(path, str(path)), str(path), findings),
        findings,
        path,
        given or {},
        beside or Beside(),
        Unasked() if access is None else images,
    )
    listed = needs_listing(spec)
    if listed:
        findings.raise_if_any()
    catalog = Catalog(spec, Listing(access, spec.origins, findings), findings)
    catalog.listed |= {(IMAGES_ORIGIN, name): entry for name, image in spec.images.items() if (entry := entry_of(image)) is not None}
    expansion = Expansion(spec, catalog, findings, jobs_max)
    workflow = expansion.workflow(str(path))
    if workflow.jobs or not findings:
        note_graph(workflow, expansion, findings)
    if expansion.scattering.makers and not findings:
        # Few workflows scatter over anything.
        from stager.readers.native_scatter import with_scatters

        workflow = with_scatters(workflow, expansion)
    if access is None or not listed:
        findings.raise_if_any()
    return workflow if access is None else resolve(workflow, access, findings=findings, where=catalog.places)


def values_read(path: Path, given: Mapping[str, Node]) -> dict[str, str]:
    """Of the parameters alone, as they stand in texts. Raises WorkflowInvalid."""
    findings = Findings(str(path))
    form = Form(findings)
    opened(compose(read_text(path, str(path)), str(path), findings), form, path, given, Beside())
    return form.params


def needs_listing(spec: WorkflowSpec) -> bool:
    references = [source.reference for file in spec.files.values() for source in file.sources]
    for job in spec.jobs.values():
        references += [axis.reference for axis in job.axes if axis.reference] + [item.reference for item in job.inputs]
    return any(reference.origin and (reference.glob or reference.directory) for reference in references)


def note_graph(workflow: Workflow, expansion: Expansion, findings: Findings) -> None:
    for found in check_graph(workflow):
        place, key = expansion.place_of(found.job, found.role, found.path, found.lfn)
        findings.note(place, key, found.message)
