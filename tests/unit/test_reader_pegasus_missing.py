"""What a Pegasus user is told when an input is not where the catalog says, or when the file is a catalog itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.errors import InvalidInput
from stager.readers.sniff import read_workflow
from tests.unit.reader_origins import DirectoryAccess

HEAD = 'pegasus: "5.0"\nname: w\n'
JOBS = "jobs:\n- {type: job, id: j, name: t, arguments: [], uses: [{lfn: a, type: input}, {lfn: b, type: input}]}\njobDependencies: []\n"
PROGRAM = "transformations:\n- {name: t, sites: [{name: local, pfn: /bin/true, type: installed}]}\n"
REPLICAS = "replicas:\n- {lfn: a, pfns: [{site: local, pfn: /nosuchdata/a}]}\n- {lfn: b, pfns: [{site: local, pfn: /nosuchdata/b}]}\n"


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_workflow(path, access=DirectoryAccess(path.parent))
    return caught.value.message


def test_missing_inputs_are_named_with_line_and_key_of_the_catalog_in_the_workflow(tmp_path: Path) -> None:
    path = tmp_path / "w.yml"
    path.write_text(HEAD + JOBS + "replicaCatalog:\n" + indented(REPLICAS) + "transformationCatalog:\n" + indented(PROGRAM))
    first, second = refusal(path).splitlines()
    assert first.startswith(f"{path}:8:5: pfn of 'a': input 'a' is missing") and "/nosuchdata/a" in first
    assert second.startswith(f"{path}:9:5: pfn of 'b': input 'b' is missing")


def test_missing_inputs_are_named_with_the_catalog_beside_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "w.yml").write_text(HEAD + JOBS + "transformationCatalog:\n" + indented(PROGRAM))
    (tmp_path / "replicas.yml").write_text('pegasus: "5.0"\n' + REPLICAS)
    assert refusal(tmp_path / "w.yml").startswith("replicas.yml:3:3: pfn of 'a': input 'a' is missing")


@pytest.mark.parametrize(("text", "what"), [(REPLICAS, "replica"), (PROGRAM, "transformation"), ("sites: []\n", "site")])
def test_a_catalog_given_as_a_workflow_is_called_what_it_is(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "catalog.yml"
    path.write_text('pegasus: "5.0"\n' + text)
    told = refusal(path)
    assert f"this is a {what} catalog, not a workflow" in told and "is missing" not in told
