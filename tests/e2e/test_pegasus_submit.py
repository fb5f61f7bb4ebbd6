"""A small Pegasus 5 workflow really runs, catalogs inline or beside it, inputs here and behind ssh; what is not run is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.origin_rig import methods
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager

HEAD = "x-pegasus: {apiLang: python}\npegasus: 5.0.4\nname: small\n"
JOBS = """\
jobs:
- {type: job, name: upper, id: up, arguments: [raw.txt, mid.txt], profiles: {env: {TRACE: '@trace@'}}, uses: [
    {lfn: raw.txt, type: input}, {lfn: mid.txt, type: output, stageOut: false, registerReplica: false}]}
- {type: job, namespace: gnu, name: wc, version: '9', id: count, arguments: [-c], stdin: mid.txt, stdout: count.txt, uses: [
    {lfn: mid.txt, type: input}, {lfn: count.txt, type: output, stageOut: true, registerReplica: true}]}
- {type: job, name: upper, id: late, arguments: [far.txt, out/late.txt], profiles: {env: {TRACE: '@trace@'}}, uses: [
    {lfn: far.txt, type: input}, {lfn: out/late.txt, type: output, stageOut: true}]}
jobDependencies:
- {id: up, children: [late]}
"""
SCRIPT = '#!/bin/sh\nset -e\ntest -x "$0"\ntr a-z A-Z < "$1" > "$2"\nsleep 0.2\necho "$2" >> "$TRACE"\n'


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


def catalogs(short_dir: Path, sshd: Sshd) -> tuple[str, str]:
    """Replicas and transformations. What they name is made: one input and the script here, the other input behind ssh."""
    near, far = short_dir / "near", sshd.data / "far"
    near.mkdir()
    far.mkdir()
    (near / "raw.txt").write_text("letters\n" * 100)
    (near / "upper.sh").write_text(SCRIPT)
    (far / "far away.txt").write_text("from afar\n")
    replicas = (
        f"replicas:\n- {{lfn: raw.txt, pfns: [{{site: local, pfn: 'file://{near}/raw.txt'}}]}}\n"
        f"- {{lfn: far.txt, pfns: [{{site: lab, pfn: 'sftp://lab{far}/far%20away.txt'}}]}}\n"
    )
    transformations = (
        f"transformations:\n- {{name: upper, sites: [{{name: local, pfn: '{near}/upper.sh', type: stageable}}]}}\n"
        "- {namespace: gnu, name: wc, version: '9', sites: [{name: local, pfn: /usr/bin/wc, type: installed}]}\n"
    )
    return replicas, transformations


def indented(name: str, text: str) -> str:
    return f"{name}:\n" + "".join(f"  {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(("written", "goes_to"), [("inline", "file"), ("beside", "sftp")])
def test_a_pegasus_workflow_runs_as_it_is_written(stager: Stager, sshd: Sshd, short_dir: Path, written: str, goes_to: str) -> None:
    replicas, transformations = catalogs(short_dir, sshd)
    trace, place = short_dir / "trace", short_dir / "pegasus"
    place.mkdir()
    jobs = JOBS.replace("@trace@", str(trace))
    if written == "inline":
        jobs = indented("replicaCatalog", replicas) + indented("transformationCatalog", transformations) + jobs
    else:
        (place / "replicas.yml").write_text("pegasus: 5.0.4\n" + replicas)
        (place / "transformations.yml").write_text("pegasus: 5.0.4\n" + transformations)
    (place / "workflow.yml").write_text(HEAD + jobs)
    config = short_dir / "ssh_config"
    config.write_text(sshd.ssh_config_text("lab"))
    stager.env = {"STAGER_SSH_CONFIG": str(config)}
    results = (short_dir if goes_to == "file" else sshd.data) / "results"
    results.mkdir()
    stager.run("submit", place / "workflow.yml", "--output-origin", str(results) if goes_to == "file" else f"sftp://lab{results}")
    found = {str(path.relative_to(results)): path.read_text() for path in results.rglob("*") if path.is_file()}
    assert found == {"count.txt": "800\n", "out/late.txt": "FROM AFAR\n"}
    assert trace.read_text() == "mid.txt\nout/late.txt\n", "jobDependencies without data were not kept to"
    assert methods(stager.json("ledger", "--finals")) == {"readback" if goes_to == "file" else "remote_checksum"}


def test_an_output_origin_is_asked_for_and_is_for_pegasus_only(stager: Stager, sshd: Sshd, short_dir: Path) -> None:
    replicas, transformations = catalogs(short_dir, sshd)
    workflow = short_dir / "workflow.yml"
    workflow.write_text(HEAD + indented("replicaCatalog", replicas) + indented("transformationCatalog", transformations) + JOBS)
    assert "--output-origin" in stager.run("submit", workflow, code=3).stderr
    workflow.write_text("stager: 1\njobs: {a: {run: 'true'}}\n")
    assert "--output-origin" in stager.run("submit", workflow, "--output-origin", "/out", code=2).stderr
    assert not stager.state_dir.exists()


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("diamond.yml", ("hooks", "checkpoint", "sub-workflows")),
        ("diamond-allinone.yml", ("hooks", "checkpoint", "sub-workflows")),
        ("sra-search.yml", ("hooks",)),
    ],
)
def test_what_is_not_run_is_refused_by_name_all_at_once(
    stager: Stager, pegasus_samples: Path, short_dir: Path, sample: str, words: tuple[str, ...]
) -> None:
    done = stager.run("submit", pegasus_samples / sample, "--output-origin", str(short_dir / "out"), code=3)
    assert [word for word in words if word not in done.stderr] == []
    assert all(f"{sample}:" in line for line in done.stderr.strip().splitlines()), "each finding names its place"
    assert not stager.state_dir.exists() and not (short_dir / "out").exists()


def test_every_missing_input_of_a_large_workflow_is_named(stager: Stager, pegasus_samples: Path, short_dir: Path) -> None:
    workflow = pegasus_samples / "genome-320.yml"
    done = stager.run("submit", workflow, "--output-origin", str(short_dir / "out"), code=2)
    assert all(f"'{lfn}' is missing" in done.stderr for lfn in ("individuals", "columns.txt", "ALL.chr1.250000.vcf", "EAS"))
    assert not stager.state_dir.exists()
