"""A job type is its workflow's own, unless the workflow file names it: what one workflow measured is nothing to another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.adapters.profiles_store import StoredProfiles
from stager.cli.profile import profile_named
from stager.model.errors import InvalidInput
from stager.model.profiling import Kind, Sample
from stager.model.topology import embedded
from stager.model.units import parse_size_bytes
from stager.model.workflow import Workflow
from stager.planning.digest import workflow_digest
from stager.planning.make_plan import make_plan
from stager.readers import native


def read(place: Path, name: str, type_: str = "", head: str = "") -> Workflow:
    said = f", type: {type_}" if type_ else ""
    (place / "w.yml").write_text(f"stager: 1\nname: {name}\n{head}jobs: {{merge: {{run: x, outputs: [out]{said}}}}}\n")
    return native.read(place / "w.yml")


def measured(*job_types: str) -> StoredProfiles:
    each = {"run": "r", "kind": Kind.RUN, "at": 1.0, "wall_s": 40.0, "output_bytes": 50 * 10**9}
    return StoredProfiles([Sample(store="s", attempt=f"a{number}", job_type=name, **each) for number, name in enumerate(job_types)], "s")


def reserved(workflow: Workflow, profiles: StoredProfiles) -> int:
    return make_plan(workflow, embedded(10**12, cores=1), profiles).jobs[0].reserve_bytes


def test_what_the_merge_of_one_workflow_measured_is_nothing_to_the_merge_of_another(tmp_path: Path) -> None:
    profiles = measured("x/merge")
    assert reserved(read(tmp_path, "x"), profiles) == 50 * 10**9
    assert reserved(read(tmp_path, "y"), profiles) < parse_size_bytes("1 MB")
    assert reserved(read(tmp_path, "y", type_="merge"), profiles) < parse_size_bytes("1 MB")


def test_a_type_that_is_named_is_shared_by_all_that_name_it(tmp_path: Path) -> None:
    one, other = (read(tmp_path, name, type_="merge") for name in ("x", "y"))
    assert one.jobs["merge"].profile == other.jobs["merge"].profile == "merge"
    assert reserved(other, measured("merge")) == 50 * 10**9
    assert reserved(read(tmp_path, "y", type_="x/merge"), measured("x/merge")) == 50 * 10**9, "another's own can be named too"


def test_hints_are_kept_by_the_name_in_the_file(tmp_path: Path) -> None:
    workflow = read(tmp_path, "x", head="io_hints: {merge: {output: 3 GB}}\n")
    assert workflow.jobs["merge"].job_type == "merge" and reserved(workflow, measured()) == 3 * 10**9


def test_plans_of_before_keep_their_digest(tmp_path: Path) -> None:
    workflow = read(tmp_path, "x")
    assert "kept_by" not in repr(workflow.jobs["merge"]) and workflow_digest(workflow) == workflow_digest(read(tmp_path, "x", "merge"))


def test_a_type_can_be_asked_for_without_its_workflow_where_only_one_has_it() -> None:
    assert profile_named(measured("x/merge", "x/sort"), "merge").job_type == "x/merge"
    with pytest.raises(InvalidInput, match="name one of x/merge, y/merge"):
        profile_named(measured("x/merge", "y/merge"), "merge")
    with pytest.raises(InvalidInput, match="nothing was measured of job type 'mrge'"):
        profile_named(measured("x/merge"), "mrge")
