"""The Pegasus reader: what is read, from which catalog, what is refused by name, what is told."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stager.model.errors import InvalidInput, Refused
from stager.model.files import Destination, Location
from stager.model.workflow import Origin, OriginKind, Workflow, graph_of
from stager.readers import pegasus
from tests.testbed.places import case_id, shared_files

OUT = Origin("out", OriginKind.FILE, "file:///products")

HEAD = "x-pegasus: {apiLang: python}\npegasus: 5.0.4\nname: diamond\n"
REPLICAS = """
replicas:
- lfn: f.a
  pfns:
  - {site: remote, pfn: 'sftp://me@lab.example.org:2222/arch%20ive/2020/f.a'}
  - {site: local, pfn: file:///data/in/f.a}
  checksum: {sha256: 'ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789'}
  metadata: {size: 1234567, creator: me}
- lfn: par.txt
  pfns: [{site: local, pfn: /data/par/par.txt}]
"""
TRANSFORMATIONS = """
transformations:
- {namespace: diamond, name: preprocess, version: '4.0', sites: [{name: local, pfn: /usr/bin/keg, type: installed}]}
- name: findrange
  requires: ['tools::sort:1']
  profiles: {env: {LEVEL: tc, KEEP: tc}}
  sites:
  - {name: far, pfn: 'https://example.org/bin/findrange', type: stageable}
  - {name: local, pfn: /data/bin/find.sh, type: stageable, profiles: {pegasus: {cores: 2}}}
- {namespace: tools, name: sort, version: '1', sites: [{name: local, pfn: /data/bin/sort, type: stageable}]}
- {name: analyze, sites: [{name: condorpool, pfn: keg, type: installed}]}
- {name: unused, sites: [{name: local, pfn: /x, type: installed, container: c}]}
"""
JOBS = """
jobs:
- type: job
  namespace: diamond
  version: '4.0'
  name: preprocess
  id: pre
  arguments: [-i, f.a, '-o f.b1', "'two words'", 15626]
  uses:
  - {lfn: f.b1, type: output, stageOut: false, registerReplica: true}
  - {lfn: f.a, type: input, size: '77'}
  profiles: {pegasus: {runtime: 60, cores: 4, memory: 2048, diskspace: 1024}, dagman: {RETRY: 5}}
- type: job
  name: findrange
  id: fr
  arguments: []
  uses:
  - {lfn: f.c, type: output, metadata: {size: 99}}
  - {lfn: f.b1, type: input}
  - {lfn: par.txt, type: input}
  - {lfn: gone.txt, type: input, optional: true}
  profiles: {env: {LEVEL: job, N: 3}}
- type: job
  name: analyze
  id: an
  stdin: f.c
  stdout: an.out
  stderr: an.err
  arguments: []
  uses:
  - {lfn: f.c, type: input}
  - {lfn: an.out, type: output, stageOut: true, registerReplica: true}
  - {lfn: maybe, type: output, stageOut: true, optional: true}
jobDependencies:
- {id: pre, children: [an]}
- {id: fr, children: [an]}
"""


def indented(text: str) -> str:
    return text.strip("\n").replace("\n", "\n  ")


def inline(jobs: str = JOBS, replicas: str = REPLICAS, transformations: str = TRANSFORMATIONS) -> str:
    return f"{HEAD}replicaCatalog:\n  {indented(replicas)}\ntransformationCatalog:\n  {indented(transformations)}\n{jobs}"


def read(tmp_path: Path, text: str, **options: object) -> Workflow:
    path = tmp_path / "workflow.yml"
    path.write_text(text)
    return pegasus.read(path, **({"output_origin": OUT} | options))


def refusal(tmp_path: Path, text: str, **options: object) -> str:
    with pytest.raises(Refused) as caught:
        read(tmp_path, text, **options)
    return caught.value.message


def complaint(tmp_path: Path, text: str, **options: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text, **options)
    return caught.value.message


def job_text(job_id: str = "j", more: str = "", uses: str = "[]", arguments: str = "[]") -> str:
    return f"jobs:\n- {{type: job, name: t, id: {job_id}, arguments: {arguments}, uses: {uses}{more}}}\n"


T = "transformations:\n- {name: t, sites: [{name: local, pfn: /bin/t, type: installed}]}\n"


def small(jobs: str, replicas: str = "replicas: []", transformations: str = T) -> str:
    return inline(jobs, replicas, transformations)


def test_jobs(tmp_path: Path) -> None:
    workflow = read(tmp_path, inline())
    pre, found, analyze = workflow.jobs.values()
    assert pre.argv == ("/usr/bin/keg", "-i", "f.a", "-o", "f.b1", "two words", "15626") and pre.job_type == "diamond::preprocess:4.0"
    assert (pre.cores, pre.memory_bytes, pre.compute_s, pre.retries) == (4, 2048 * 2**20, 60.0, 5)
    assert found.argv == ("./findrange",) and found.cores == 2
    assert [(entry.lfn, entry.path) for entry in found.inputs] == [
        (name, name) for name in ("f.b1", "par.txt", "findrange", "tools-sort-1")
    ]
    assert found.env == (("KEEP", "tc"), ("LEVEL", "job"), ("N", "3"))
    assert (analyze.stdin, analyze.stdout, analyze.stderr) == ("f.c", "an.out", "an.err")
    assert [(entry.lfn, entry.optional) for entry in analyze.outputs] == [("an.out", False), ("maybe", True), ("an.err", False)]
    assert analyze.after == ("pre",) and graph_of(workflow).parents["an"] == ("fr", "pre")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-i a", "", " b"], ["-i", "a", "b"]),
        (["'-i a", "b'"], ["-i a b"]),
        ([r'"a\"b', "c"], ["a\\b", "c"]),
        ([r"a\ b", "#c", "*", "$HOME"], ["a b", "#c", "*", "$HOME"]),
    ],
)
def test_arguments_are_split_as_pegasus_does_it(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    workflow = read(tmp_path, small(job_text(arguments=json.dumps(arguments))))
    assert list(workflow.jobs["j"].argv[1:]) == words


def test_files(tmp_path: Path) -> None:
    workflow = read(tmp_path, inline())
    remote, local = workflow.files["f.a"].sources
    assert (remote.location, remote.site, remote.priority) == (Location("sftp-lab-example-org-2222", "f.a"), "remote", 1)
    assert (local.location, local.site, local.priority) == (Location("local", "in/f.a"), "local", 0)
    assert workflow.files["f.a"].size_bytes == 1234567 and workflow.files["f.a"].sha256 == ("abcdef0123456789" * 4)
    assert {name: origin.url for name, origin in workflow.origins.items()} == {
        "sftp-lab-example-org-2222": "sftp://me@lab.example.org:2222/arch%20ive/2020",
        "local": "file:///data",
        "out": "file:///products",
    }
    assert workflow.files["findrange"].executable and workflow.files["findrange"].sources[0].location == Location("local", "bin/find.sh")
    assert workflow.files["f.c"].destination == Destination(Location("out", "f.c")) and workflow.files["f.c"].size_bytes == 99
    assert {lfn for lfn, file in workflow.files.items() if file.is_final} == {"f.c", "an.out", "maybe"}


def test_notes(tmp_path: Path) -> None:
    notes = read(tmp_path, inline()).notes
    for note in (
        "registerReplica is not done: stager writes no replica catalog (jobs: pre, an)",
        "the optional input 'gone.txt' is nowhere and left out (job: fr)",
        "profile pegasus.diskspace is not used (job: pre)",
        "web sources of 'findrange' are left out, because it has another",
    ):
        assert note in notes, notes


def test_catalogs_beside_the_workflow(tmp_path: Path) -> None:
    expected = read(tmp_path, inline())
    for names in (("replicas.yml", "transformations.yml"), ("a-b-replicas.yaml", "a-transformations.yml")):
        place = tmp_path / names[0]
        place.mkdir()
        (place / names[0]).write_text(HEAD + REPLICAS)
        (place / names[1]).write_text(HEAD + TRANSFORMATIONS)
        path = place / "a-b-320.yml"
        path.write_text(HEAD + JOBS)
        found = pegasus.read(path, output_origin=OUT)
        assert (found.jobs, found.files, found.origins, found.notes) == (expected.jobs, expected.files, expected.origins, expected.notes)


def test_the_nearer_catalog_wins_and_an_inline_one_is_all(tmp_path: Path) -> None:
    (tmp_path / "workflow-replicas.yml").write_text("replicas: [{lfn: in, pfns: [{site: local, pfn: /near/in}]}]")
    (tmp_path / "replicas.yml").write_text("replicas: [{lfn: in, pfns: [{site: local, pfn: /far/in}]}]")
    jobs = job_text(uses="[{lfn: in, type: input}]")
    text = f"{HEAD}transformationCatalog:\n  {indented(T)}\n{jobs}"
    assert read(tmp_path, text).origins["local"].url == "file:///near"
    assert "input 'in' is made by no job and is not in the replica catalog (job: j)" in complaint(tmp_path, small(jobs))


def test_missing_catalogs_are_told_with_the_names_looked_for(tmp_path: Path) -> None:
    message = complaint(tmp_path, HEAD + job_text(uses="[{lfn: in, type: input}]"))
    assert "none of workflow-replicas.yml, workflow-replicas.yaml, replicas.yml" in message
    assert "transformation 't' is in no catalog: there is none in the workflow, and none of workflow-transformations.yml" in message


def test_everything_refused_is_told_at_once_with_jobs_and_lines(tmp_path: Path) -> None:
    text = small(
        """
hooks: {shell: [{_on: end, cmd: /bin/date}]}
jobs:
- {type: job, name: t, id: a, arguments: [], uses: [{lfn: x, type: inout}, {lfn: ck, type: checkpoint}]}
- {type: job, name: boxed, id: b, arguments: [], uses: [], hooks: {shell: [{_on: start, cmd: ls}]}}
- {type: pegasusWorkflow, file: inner.yml, id: sub, arguments: [], uses: [{lfn: d, type: output}]}
- {type: condorWorkflow, file: inner.dag, id: dag, arguments: [], uses: []}
- {type: job, name: t, id: c, arguments: [], uses: [{lfn: d, type: input}, {lfn: y, type: output}, {lfn: ck, type: checkpoint}]}
jobDependencies: [{id: sub, children: [c]}]
""",
        "replicas: [{lfn: 'f.*', regex: true, pfns: [{site: local, pfn: /data/f}]}]",
        T
        + "- {name: boxed, sites: [{name: local, pfn: /bin/b, type: installed, container: image}]}\n"
        + "containers: [{name: image, type: docker, image: 'oras://host/boxed:1'}]\n",
    )
    message = refusal(tmp_path, text, output_origin=None)
    for told in (
        "workflow.yml:12:8: hooks: hooks are not run",
        "(type: inout); read one name and write another (job: a with 'x')",
        "take them out, or make each part a job of its own (jobs: a with 'ck', c with 'ck')",
        "hooks of jobs are not run; take them out, or make the command a job of its own (job: b)",
        "no oras:// image is pulled here, and 'boxed' runs in 'image'; bring it once as a file",
        "sub-workflows (type: pegasusWorkflow) are not run; run the inner workflow first, as a workflow of its own (job: sub)",
        "sub-workflows (type: condorWorkflow) are not run",
        "regex replica 'f.*': which files it stands for is not known before the run",
        "1 output is to be staged out (y), and nothing says where to; add --output-origin URL",
    ):
        assert told in message, f"{told}\n--- not in ---\n{message}"
    assert "made by no job" not in message and "there is no job" not in message
    assert len(message.splitlines()) == 9


BOXED = """- {name: boxed, sites: [{name: inside, pfn: /opt/b, type: installed, container: %s}]}
containers:
- {name: tools, type: singularity, image: /data/tools.sif, image_site: cluster, profiles: {env: {A: container, B: container}}}
- {name: mounts, type: docker, image: /data/tools.tar, mounts: ["/data:/data:ro"]}
"""
BOXED_JOB = "jobs:\n- {type: job, name: boxed, id: b, arguments: [], uses: [], profiles: {env: {A: job}}}\n"


def test_a_container_is_an_image_that_its_jobs_read(tmp_path: Path) -> None:
    found = read(tmp_path, small(BOXED_JOB, transformations=T + BOXED % "tools"))
    job = found.jobs["b"]
    assert job.image == "tools.image" and job.argv == ("/opt/b",) and dict(job.env) == {"A": "job", "B": "container"}
    [source] = found.files["tools.image"].sources
    assert source.location.path.endswith("tools.sif") and source.site == "cluster"


def test_containers_that_are_nowhere_or_mount_directories_are_named(tmp_path: Path) -> None:
    assert "'boxed' runs in 'tool', which is not among the containers; did you mean 'tools'?" in complaint(
        tmp_path, small(BOXED_JOB, transformations=T + BOXED % "tool")
    )
    told = refusal(tmp_path, small(BOXED_JOB, transformations=T + BOXED % "mounts"))
    assert "'mounts' mounts '/data:/data:ro'; make it an input" in told


def test_an_unused_container_and_empty_hooks_are_no_matter(tmp_path: Path) -> None:
    assert read(tmp_path, inline("hooks: {shell: []}\n" + JOBS)).jobs


def test_no_output_origin_is_fine_when_nothing_is_staged_out(tmp_path: Path) -> None:
    assert (
        read(tmp_path, small(job_text(uses="[{lfn: x, type: output, stageOut: false}]")), output_origin=None).files["x"].destination is None
    )


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        (job_text(uses="[{lfn: /etc/x, type: input}]"), "'/etc/x' is absolute"),
        (job_text(uses="[{lfn: ../x, type: output}]"), "leaves its directory by '..'"),
        (job_text(uses="[{lfn: x, type: both}]"), "workflow.yml:10:53: jobs.uses.type: 'both' is not one of input, output, none"),
        (job_text(uses="[{lfn: x, type: output, size: big}]"), "'big' is not a number of bytes"),
        (job_text(uses=f"[{{lfn: x, type: output, size: {2**63}}}]"), "'9223372036854775808' is not a number of bytes"),
        (job_text(uses=f"[{{lfn: x, type: output, size: {'9' * 5000}}}]"), "'99999999999999999999…' is not a number of bytes"),
        (job_text(uses="[{lfn: x, type: output, stageOut: maybe}]"), "'maybe' is not true or false"),
        (job_text(more=", profiles: {pegasus: {runtime: 1_000}}"), "'1_000' is not a number of 0 or more (job: j)"),
        (job_text(more=", profiles: {condor: {request_memory: 9999999 TB}}"), "'9999999 TB' is more memory than any machine has (job: j)"),
        (job_text(arguments='["a\\0b"]'), "jobs.arguments: an argument holds a NUL character; no program can be given it (job: j)"),
        (job_text(more=", profiles: {pegasus: {runtime: long}}"), "'long' is not a number of 0 or more (job: j)"),
        (job_text(more=", profiles: {env: {A-B: 1}}"), "'A-B' cannot be set in an environment"),
        (job_text(arguments='["it\'s"]'), "cannot be split into words: no closing quotation; close the quote (job: j)"),
        (job_text() + job_text().removeprefix("jobs:\n"), "two jobs have the id 'j'"),
        (job_text() + "jobDependencies: [{id: j, children: [ghost]}]", "there is no job 'ghost'"),
        ("jobs: []", "there are no jobs"),
        ("jobs:\n- {type: magic, name: t, id: j}", "'magic' is not a type of job"),
        ("jobs:\n- {type: job, name: t}", "jobs.id: is missing"),
        ("jobs: {a: b}", "jobs: must be a list"),
        (job_text() + "hooks: [{_on: end}]", "hooks: must be a mapping of keys to values"),
        (job_text(more=", hooks: [x]"), "jobs.hooks: must be a mapping of keys to values"),
        (job_text().replace("name: t", "name: tt"), "transformation 'tt' is not in the transformation catalog; did you mean 't'?"),
        (
            job_text().replace("name: t", "name: t, version: '2'"),
            "transformation 't:2' is not in the transformation catalog; did you mean 't'?",
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, jobs: str, told: str) -> None:
    message = complaint(tmp_path, small(jobs))
    assert told in message, message


def test_all_missing_inputs_at_once(tmp_path: Path) -> None:
    jobs = "jobs:\n" + "".join(
        f"- {{type: job, name: t, id: j{n}, arguments: [], uses: [{{lfn: in{n % 3}, type: input}}]}}\n" for n in range(6)
    )
    lines = complaint(tmp_path, small(jobs)).splitlines()
    assert len(lines) == 3 and all(f"'in{n}'" in lines[n] and f"(jobs: j{n}, j{n + 3})" in lines[n] for n in range(3))


def test_graph_errors_name_the_job_and_its_line(tmp_path: Path) -> None:
    two = """jobs:
- {type: job, name: t, id: a, arguments: [], uses: [{lfn: x, type: output}]}
- {type: job, name: t, id: b, arguments: [], uses: [{lfn: x, type: output}]}
"""
    assert "workflow.yml:11:3: job 'b': 'x' has two producers: 'a' and 'b'" in complaint(tmp_path, small(two))
    circle = """jobs:
- {type: job, name: t, id: a, arguments: [], uses: [{lfn: x, type: output}, {lfn: y, type: input}]}
- {type: job, name: t, id: b, arguments: [], uses: [{lfn: y, type: output}, {lfn: x, type: input}]}
"""
    assert "jobs wait for each other in a circle" in complaint(tmp_path, small(circle))
    both = job_text(uses="[{lfn: x, type: output}, {lfn: x, type: input}]")
    assert "'x' is an input and an output" in complaint(tmp_path, small(both))


def test_a_file_that_a_job_makes_is_not_fetched(tmp_path: Path) -> None:
    jobs = job_text("a", uses="[{lfn: x, type: output}]") + job_text("b", uses="[{lfn: x, type: input}]").removeprefix("jobs:\n")
    workflow = read(tmp_path, small(jobs, "replicas: [{lfn: x, pfns: [{site: local, pfn: /old/x}]}]"))
    assert not workflow.files["x"].is_external and "the replica of 'x' is not used, because job 'a' makes the file" in workflow.notes


def test_memory_as_condor_writes_it_and_who_wins(tmp_path: Path) -> None:
    def memory_of(profiles: str) -> int | None:
        return read(tmp_path, small(job_text(more=f", profiles: {profiles}"))).jobs["j"].memory_bytes

    assert memory_of("{condor: {request_memory: 1 GB}}") == 2**30
    assert memory_of("{condor: {request_memory: 1024}}") == 2**30
    assert memory_of("{pegasus: {memory: 10}, condor: {request_memory: 1024}}") == 10 * 2**20


def test_secrets_in_env_profiles_are_taken_from_the_environment(tmp_path: Path) -> None:
    workflow = read(tmp_path, small(job_text(more=", profiles: {env: {AWS_SECRET_ACCESS_KEY: hush}}")))
    assert workflow.jobs["j"].env == () and workflow.jobs["j"].env_pass == ("AWS_SECRET_ACCESS_KEY",)
    assert "hush" not in repr(workflow) and any("AWS_SECRET_ACCESS_KEY" in note for note in workflow.notes)


def test_the_site_decides_program_profiles_and_first_source(tmp_path: Path) -> None:
    tools = "transformations:\n- name: t\n  sites:\n  - {name: a, pfn: /a/t, type: installed}\n  - {name: b, pfn: /b/t, type: installed}\n"
    sites = "siteCatalog:\n  sites: [{name: b, profiles: {env: {WHERE: b}}}]\n"
    jobs = sites + job_text(uses="[{lfn: in, type: input}]")
    text = small(jobs, "replicas: [{lfn: in, pfns: [{site: a, pfn: /a/in}, {site: b, pfn: /b/in}]}]", tools)
    at_b = read(tmp_path, text, site="b")
    assert at_b.jobs["j"].argv == ("/b/t",) and at_b.jobs["j"].env == (("WHERE", "b"),)
    assert [(source.site, source.priority) for source in at_b.files["in"].sources] == [("a", 1), ("b", 0)]
    unnamed = read(tmp_path, text)
    assert unnamed.jobs["j"].argv == ("/a/t",) and "programs installed at site 'a' are taken to be installed here: t" in unnamed.notes
    assert "'t' is not at site 'c'; choose one of a, b, or make it stageable" in complaint(tmp_path, text, site="c")


def test_a_staged_program_that_is_called_like_a_file(tmp_path: Path) -> None:
    tools = "transformations:\n- {name: t, sites: [{name: local, pfn: /b/t, type: stageable}]}\n"
    message = complaint(tmp_path, small(job_text(uses="[{lfn: t, type: output}]"), transformations=tools))
    assert "'t' is staged as 't', which is another file of the workflow too" in message


def test_what_a_transformation_requires_may_be_a_file_and_must_be_known(tmp_path: Path) -> None:
    tools = "transformations:\n- {name: t, requires: [lib.jar, 'n::o:1'], sites: [{name: local, pfn: /b/t, type: installed}]}\n"
    text = small(job_text(), "replicas: [{lfn: lib.jar, pfns: [{site: local, pfn: /lib/lib.jar}]}]", tools)
    assert "transformation 'n::o:1' is not in the transformation catalog" in complaint(tmp_path, text)
    workflow = read(tmp_path, text.replace(", 'n::o:1'", ""))
    assert [entry.lfn for entry in workflow.jobs["j"].inputs] == ["lib.jar"]


def test_other_formats_of_pegasus_are_told(tmp_path: Path) -> None:
    assert "format 4.9 is not read; Pegasus 5 is" in complaint(tmp_path, small(job_text()).replace("5.0.4", "4.9"))


@pytest.mark.parametrize("case", ["genome-320.yml", *shared_files("pegasus/1000genome-daxgen-320.yml")], ids=case_id)
def test_a_large_workflow_is_read(pegasus_samples: Path, case: str | Path) -> None:
    workflow = pegasus.read(pegasus_samples / case, output_origin=OUT)
    graph = graph_of(workflow)
    assert len(workflow.jobs) == 320 and len(workflow.files) == 353
    files = workflow.files.values()
    assert sum(file.is_external for file in files) == 33 and sum(file.is_final for file in files) == 140
    assert set(graph.parents["ID0000017"]) >= {f"ID{number:07d}" for number in range(1, 17)} and workflow.notes == ()
    assert workflow.jobs["ID0000001"].argv == ("./individuals", "ALL.chr1.250000.vcf", "1", "1", "15626", "250000")


PLANNED = ["diamond-planned.yml", *shared_files("pegasus/planned/*/workflow.yml")]


@pytest.mark.parametrize("case", PLANNED, ids=lambda case: Path(case).parent.name or "written")
def test_a_workflow_that_was_planned_is_read(pegasus_samples: Path, case: str | Path) -> None:
    workflow = pegasus.read(pegasus_samples / case, output_origin=OUT)
    assert list(workflow.jobs) == ["pre", "fr1", "fr2", "an"] and set(graph_of(workflow).parents["an"]) == {"fr1", "fr2"}
    assert workflow.origins["local"].url == "file:///scratch"


HOOKED = ["8:3: hooks", "'ck'", "pegasusWorkflow"]
REFUSED = {
    "diamond": HOOKED,
    "diamond-allinone": HOOKED,
    "sra-search": ["8:3: hooks"],
}


@pytest.mark.parametrize(
    "case", [*(f"{name}.yml" for name in REFUSED), *shared_files("pegasus/diamond*.yml"), *shared_files("pegasus/sra-*.yml")], ids=case_id
)
def test_what_is_not_served_is_refused_by_name(pegasus_samples: Path, case: str | Path) -> None:
    with pytest.raises(Refused) as caught:
        pegasus.read(pegasus_samples / case, output_origin=OUT)
    words = REFUSED[Path(case).stem.removesuffix("-10")]
    assert [word for word in words if word not in caught.value.message] == []


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seconds"), [(3_900, 4), pytest.param(39_000, 40, marks=pytest.mark.heavy)])
def test_megabytes_are_read_in_seconds(tmp_path: Path, count: int, seconds: float) -> None:
    jobs = ["jobs:"]
    replicas = ["replicas:"]
    for number in range(count):
        kinds = {f"f{number}.sgt": "input", "shared.sgt": "input", f"g{number}": "output"}
        uses = "".join(f"  - lfn: {name}\n    type: {kind}\n" for name, kind in kinds.items())
        jobs.append(
            f"- type: job\n  name: t\n  id: ID{number:07d}\n  arguments:\n  - stat_lon=-118.2\n  - rupmodfile=e{number}.txt.variation\n"
            f"  uses:\n{uses}  profiles:\n    pegasus:\n      runtime: 60"
        )
        replicas.append(f"- lfn: f{number}.sgt\n  pfns:\n  - site: local\n    pfn: file:///data/input/directory/of/traces/f{number}.sgt")
    replicas.append("- {lfn: shared.sgt, pfns: [{site: local, pfn: /data/shared.sgt}]}")
    edges = "".join(f"\n- id: ID{number:07d}\n  children:\n  - ID{number + 1:07d}" for number in range(0, count - 1, 2))
    text = small("\n".join(jobs) + "\njobDependencies:" + edges, "\n".join(replicas))
    assert len(text) > 380 * count
    started = time.process_time()
    workflow = read(tmp_path, text)
    assert time.process_time() - started < seconds
    assert len(workflow.jobs) == count and len(workflow.files) == 2 * count + 1
