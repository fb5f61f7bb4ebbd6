"""The native format: what a text means. Files are real, in a temporary directory; file origins are really listed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stager.model.errors import InvalidInput
from stager.model.files import Destination, FileKind, Location, OnExists
from stager.model.workflow import OnFailure, OriginKind, Workflow, graph_of
from stager.readers.sniff import WorkflowFormat, read_workflow, sniff
from tests.unit.reader_origins import DirectoryAccess


def read(tmp_path: Path, text: str, *files: str) -> Workflow:
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    workflow_file = tmp_path / "workflow.yml"
    workflow_file.write_text(text)
    return read_workflow(workflow_file, access=DirectoryAccess(tmp_path))


def pairs(entries) -> list[tuple[str, str]]:
    return [(entry.lfn, entry.path) for entry in entries]


MONTAGE = """
stager: 1
name: montage
origins:
  lab: {url: "sftp://me@lab.example.org/data/m31", credentials: agent}
  results: {url: "s3://bucket/prefix", endpoint: "https://s3.example.org", credentials: "profile:me", region: eu-west-1}
  data: file:./data
files:
  region.hdr: {from: data:region.hdr, size: 2 KB}
  raw: data:raw/*.fits
jobs:
  project:
    foreach: {tile: raw}
    run: mProject {tile} p_{tile.stem}.fits region.hdr
    inputs: ["{tile}", region.hdr]
    outputs: ["p_{tile.stem}.fits"]
    cores: 2
    memory: 1 GiB
    retries: 5
    timeout: 20 min
  add:
    run: [mAdd, p, out.tbl, region.hdr, mosaic.fits]
    inputs: ["p_*.fits", region.hdr]
    outputs: {mosaic.fits: results:mosaic.fits, log/: "results:"}
    type: mAdd
    idempotent: false
    deterministic: true
io_hints: {project: {compute: 12 s, output: 40 MB, read_fraction: 0.5}}
on_failure: stop
spill: results:.spill
"""


def test_a_whole_workflow_is_read_as_written(tmp_path):
    workflow = read(tmp_path, MONTAGE, "data/region.hdr", "data/raw/b.fits", "data/raw/a.fits", "data/raw/skipped.txt")
    assert list(workflow.jobs) == ["project[raw/a.fits]", "project[raw/b.fits]", "add"]
    first = workflow.jobs["project[raw/a.fits]"]
    assert pairs(first.inputs) == [("raw/a.fits", "raw/a.fits"), ("region.hdr", "region.hdr")]
    assert pairs(first.outputs) == [("p_a.fits", "p_a.fits")]
    assert (first.job_type, first.cores, first.memory_bytes, first.retries, first.timeout_s) == ("project", 2, 2**30, 5, 1200.0)
    add = workflow.jobs["add"]
    assert add.argv == ("mAdd", "p", "out.tbl", "region.hdr", "mosaic.fits") and add.shell == ""
    assert pairs(add.inputs) == [("p_a.fits", "p_a.fits"), ("p_b.fits", "p_b.fits"), ("region.hdr", "region.hdr")]
    assert (add.job_type, add.idempotent, add.deterministic) == ("mAdd", False, True)
    assert workflow.files["mosaic.fits"].destination == Destination(Location("results", "mosaic.fits"), OnExists.FAIL)
    assert workflow.files["log"].kind is FileKind.DIRECTORY
    assert workflow.files["log"].destination.location == Location("results", "log")
    assert workflow.files["region.hdr"].size_bytes == len("content of region.hdr") + len("data/")
    assert workflow.hints["project"].output_bytes == 40_000_000 and workflow.hints["project"].read_fraction == 0.5
    assert workflow.on_failure is OnFailure.STOP
    assert workflow.origins["data"].url == f"file://{tmp_path}/data"
    results = workflow.origins["results"]
    assert (results.kind, results.credentials) == (OriginKind.S3, "profile:me")
    assert results.options == (("endpoint", "https://s3.example.org"), ("region", "eu-west-1"))
    assert workflow.origins[workflow.spill_origin].url == "s3://bucket/prefix/.spill"
    assert "lab" not in workflow.origins, "an origin that nothing uses needs no credentials"
    assert graph_of(workflow).order[-1] == "add"


def test_the_same_text_and_files_give_the_same_workflow(tmp_path):
    files = ("data/region.hdr", "data/raw/b.fits", "data/raw/a.fits")
    assert read(tmp_path, MONTAGE, *files) == read(tmp_path, MONTAGE)


def test_every_external_file_has_size_and_token(tmp_path):
    workflow = read(tmp_path, MONTAGE, "data/region.hdr", "data/raw/a.fits")
    for lfn in ("region.hdr", "raw/a.fits"):
        (source,) = workflow.files[lfn].sources
        assert source.size_bytes == workflow.files[lfn].size_bytes == (tmp_path / "data" / lfn).stat().st_size
        assert source.token.endswith(f";s={source.size_bytes}")


def test_jobs_are_isolated_and_bound_by_their_memory_unless_they_say_otherwise(tmp_path):
    text = """stager: 1
defaults: {memory: 1 GB}
jobs:
  plain: {run: x}
  free: {run: x, isolate: off, memory_limit: off}
  roomy: {run: x, isolate: on, memory: 500 MB, memory_limit: 2 GB}
"""
    jobs = read(tmp_path, text).jobs
    said = {name: (job.isolate, job.memory_bytes, job.memory_limit_bytes) for name, job in jobs.items()}
    giga = 10**9
    assert said == {"plain": (True, giga, giga), "free": (False, giga, None), "roomy": (True, giga // 2, 2 * giga)}
    unbound = read(tmp_path, "stager: 1\ndefaults: {isolate: off}\njobs: {a: {run: x}}\n").jobs["a"]
    assert (unbound.isolate, unbound.memory_limit_bytes) == (False, None)


def test_a_minimal_workflow_needs_four_lines(tmp_path):
    text = "stager: 1\njobs:\n  hello: {run: sort in.txt > out.txt, inputs: here:in.txt, outputs: {out.txt: here:out.txt}}\n"
    workflow = read(tmp_path, text, "in.txt")
    assert workflow.name == tmp_path.name
    assert workflow.jobs["hello"].shell == "sort in.txt > out.txt"
    assert workflow.origins["here"].url == f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("foreach", "rows"),
    [
        ("{n: [3, 007, yes]}", [("3",), ("007",), ("yes",)]),
        ("{n: 1..3}", [("1",), ("2",), ("3",)]),
        ("{n: 8..10..2}", [("8",), ("10",)]),
        ("{n: 3..1}", [("3",), ("2",), ("1",)]),
        ("{n: 08..10}", [("08",), ("09",), ("10",)]),
        ("{a: [x, y], n: 1..2}", [("x", "1"), ("x", "2"), ("y", "1"), ("y", "2")]),
        ("{zip: {a: [x, y], n: 1..2}}", [("x", "1"), ("y", "2")]),
        ("{zip: {a: [x, y], n: 1..2}, b: [u, v]}", [("x", "1", "u"), ("x", "1", "v"), ("y", "2", "u"), ("y", "2", "v")]),
        ("[{a: x, n: 1}, {n: 2, a: x}]", [("x", "1"), ("x", "2")]),
    ],
)
def test_foreach_rows(tmp_path, foreach, rows):
    workflow = read(tmp_path, f"stager: 1\njobs:\n  j:\n    foreach: {foreach}\n    run: 'true'\n")
    assert [tuple(value for _, value in job.env) for job in workflow.jobs.values()] == rows
    assert list(workflow.jobs) == [f"j[{','.join(row)}]" for row in rows]


def test_foreach_over_what_jobs_above_make(tmp_path):
    text = """
stager: 1
jobs:
  split: {foreach: {i: 1..3}, run: x, outputs: ["part/{i}.txt"]}
  count: {foreach: {part: "part/*.txt"}, run: x, inputs: ["{part}"], outputs: ["{part.dir}/{part.name}.{part.suffix}"]}
"""
    workflow = read(tmp_path, text)
    assert [job.outputs[0].lfn for job in workflow.jobs.values()][3:] == ["part/1.txt..txt", "part/2.txt..txt", "part/3.txt..txt"]
    assert graph_of(workflow).parents["count[part/2.txt]"] == ("split[2]",)


def test_a_glob_never_matches_what_its_own_entry_makes(tmp_path):
    text = """
stager: 1
jobs:
  make: {run: x, outputs: [a.txt]}
  copy: {foreach: {i: 1..2}, run: x, inputs: ["*.txt"], outputs: ["{i}.txt"]}
"""
    workflow = read(tmp_path, text)
    assert pairs(workflow.jobs["copy[1]"].inputs) == [("a.txt", "a.txt")]


def test_sets_keep_their_paths_or_go_where_as_puts_them(tmp_path):
    text = """
stager: 1
files:
  all: here:in/
  moved: {from: "here:in/**/*.b", as: there, executable: true}
jobs:
  j: {run: x, inputs: [all, moved]}
  k: {run: x, inputs: [{from: "here:more/*", as: m}, {from: all, as: sub}]}
"""
    with pytest.raises(InvalidInput, match="two inputs at 'in/d/y.b'|already|twice"):
        read(tmp_path, text, "in/x.a", "in/d/y.b", "more/1", "more/.hidden", "in/.dot")
    text = text.replace("[all, moved]", "[moved]")
    workflow = read(tmp_path, text.replace("all: here:in/", 'all: "here:in/x*"'))
    assert pairs(workflow.jobs["j"].inputs) == [("there/d/y.b", "there/d/y.b")]
    assert workflow.files["there/d/y.b"].executable
    assert pairs(workflow.jobs["k"].inputs) == [("more/1", "m/1"), ("in/x.a", "sub/in/x.a")]


def test_a_directory_of_an_origin_is_all_files_below_it(tmp_path):
    workflow = read(
        tmp_path, "stager: 1\njobs:\n  j: {run: x, inputs: ['here:in/']}\n", "in/x", "in/d/e/y", "in/.dot", "in/.stager-tmp", "other"
    )
    assert [path for _, path in pairs(workflow.jobs["j"].inputs)] == ["in/.dot", "in/d/e/y", "in/x"]


def test_a_named_file_that_no_job_reads_is_noted_and_left_out(tmp_path):
    text = "stager: 1\nfiles: {f: here:gone, s: 'here:*.x', t: 'here:*.y'}\njobs: {j: {run: c, inputs: [s]}}\n"
    workflow = read(tmp_path, text, "1.x", "2.y")
    assert list(workflow.files) == ["1.x"]
    assert [note.split()[0] for note in workflow.notes] == ["files.f", "files.t"]


def test_inputs_as_a_mapping_stand_at_the_given_path(tmp_path):
    text = "stager: 1\njobs:\n  j:\n    run: x\n    inputs:\n      bin/tool: {from: here:tool.sh, executable: true}\n      d/a: here:a\n"
    workflow = read(tmp_path, text, "tool.sh", "a")
    assert pairs(workflow.jobs["j"].inputs) == [("tool.sh", "bin/tool"), ("a", "d/a")]
    assert workflow.files["tool.sh"].executable and not workflow.files["a"].executable


def test_one_place_has_one_name_and_taken_names_get_their_origin(tmp_path):
    text = """
stager: 1
origins: {one: file:one, two: file:two}
files: {named: one:x}
jobs:
  a: {run: c, inputs: [one:x, one:y], outputs: [z]}
  b: {run: c, inputs: [two:y, one:y, {from: two:z, as: w}]}
"""
    text = text.replace("two:y, one:y", "one:y, {from: two:y, as: v}")
    workflow = read(tmp_path, text, "one/x", "one/y", "two/y", "two/z")
    assert pairs(workflow.jobs["a"].inputs) == [("named", "x"), ("y", "y")]
    assert pairs(workflow.jobs["b"].inputs) == [("y", "y"), ("two:y", "v"), ("two:z", "w")]


def test_outputs_in_all_their_forms(tmp_path):
    text = """
stager: 1
on_exists: replace
jobs:
  a:
    run: x
    outputs:
      - plain
      - {file: sized, size: 3 MB, optional: true, executable: true}
      - {dir: d, to: "here:out/"}
      - {file: "odd[1]*", literal: true}
  b:
    run: x
    on_exists: fail
    outputs: {e: , f: here:g, h: {to: here:i, on_exists: replace}, j/: }
finals:
  plain: here:p
  "si*": "here:fin/"
"""
    workflow = read(tmp_path, text)
    destinations = {
        lfn: (file.destination.location.path, file.destination.on_exists) for lfn, file in workflow.files.items() if file.is_final
    }
    replace, fail = OnExists.REPLACE, OnExists.FAIL
    assert destinations == {
        "plain": ("p", replace),
        "sized": ("fin/sized", replace),
        "d": ("out/d", replace),
        "f": ("g", fail),
        "h": ("i", replace),
    }
    assert [output.optional for output in workflow.jobs["a"].outputs] == [False, True, False, False]
    assert workflow.files["sized"].size_bytes == 3_000_000 and workflow.files["sized"].executable
    assert [lfn for lfn, file in workflow.files.items() if file.kind is FileKind.DIRECTORY] == ["d", "j"]
    assert workflow.jobs["a"].outputs[3].path == "odd[1]*"


def test_a_produced_directory_is_read_with_or_without_its_slash(tmp_path):
    text = "stager: 1\njobs:\n  a: {run: x, outputs: [d/]}\n  b: {run: x, inputs: [d/]}\n  c: {run: x, inputs: {e: d}}\n"
    workflow = read(tmp_path, text)
    assert pairs(workflow.jobs["b"].inputs) == [("d", "d")] and pairs(workflow.jobs["c"].inputs) == [("d", "e")]


def test_standard_streams_declare_themselves(tmp_path):
    text = "stager: 1\njobs:\n  a: {run: sort, stdin: here:in.txt, stdout: out.txt, stderr: err.txt, outputs: {out.txt: here:o}}\n"
    job = read(tmp_path, text, "in.txt").jobs["a"]
    assert (job.stdin, job.stdout, job.stderr) == ("in.txt", "out.txt", "err.txt")
    assert pairs(job.inputs) == [("in.txt", "in.txt")]
    assert pairs(job.outputs) == [("out.txt", "out.txt"), ("err.txt", "err.txt")]


def test_after_takes_an_entry_or_one_of_its_jobs(tmp_path):
    text = """
stager: 1
jobs:
  a: {foreach: {i: 1..2}, run: x}
  b: {run: x, after: a}
  c: {foreach: {i: 1..2}, run: x, after: ["a[{i}]", b]}
"""
    workflow = read(tmp_path, text)
    assert workflow.jobs["b"].after == ("a[1]", "a[2]")
    assert workflow.jobs["c[2]"].after == ("a[2]", "b")


def test_defaults_are_taken_over_and_env_is_united(tmp_path):
    text = """
stager: 1
defaults: {cores: 3, retries: 0, env: {A: "1", B: "2"}, env_pass: LANG, timeout: 5}
jobs:
  a: {run: x}
  b: {foreach: {i: [q]}, run: x, cores: 1, env: {B: "{i}-${HOME}"}, env_pass: [HOME]}
"""
    jobs = read(tmp_path, text).jobs
    assert (jobs["a"].cores, jobs["a"].retries, jobs["a"].env, jobs["a"].env_pass, jobs["a"].timeout_s) == (
        3,
        0,
        (("A", "1"), ("B", "2")),
        ("LANG",),
        5.0,
    )
    assert (jobs["b[q]"].cores, jobs["b[q]"].env, jobs["b[q]"].env_pass) == (
        1,
        (("i", "q"), ("A", "1"), ("B", "q-${HOME}")),
        ("LANG", "HOME"),
    )


def test_values_cannot_turn_into_origins_globs_or_ways_out(tmp_path):
    names = ["here:a", "*", "[x]", "a b", "q'\"", "$(touch gone)", "{tile}", "été\n"]
    files = [f"in/{name}" for name in names]
    text = """
stager: 1
jobs:
  a: {foreach: {f: "here:in/*"}, run: [cat, "{f}"], inputs: ["{f}"], outputs: ["out {f.name}.x"]}
  b: {foreach: {g: "out*"}, run: x, inputs: ["{g.stem}*"]}
"""
    workflow = read(tmp_path, text, *files)
    jobs = [job for job in workflow.jobs.values() if job.job_type == "a"]
    assert sorted(job.argv[1] for job in jobs) == sorted(files)
    for job in jobs:
        assert pairs(job.inputs) == [(job.argv[1], job.argv[1])]
        assert job.outputs[0].path == f"out {job.argv[1][3:]}.x"
    for job in workflow.jobs.values():
        if job.job_type == "b":
            assert [entry.lfn for entry in job.inputs] == [dict(job.env)["g"]]
    with pytest.raises(InvalidInput, match=r"'\.\./x' leaves its directory"):
        read(tmp_path, "stager: 1\njobs:\n  a: {foreach: {f: [../x]}, run: x, outputs: ['{f}']}\n")


def test_anchors_are_read_and_scalars_stay_text(tmp_path):
    text = "stager: 1\njobs:\n  a: &one {run: 'true', env: {V: 1e3, W: on, X: 0x1F}}\n  b: *one\n"
    jobs = read(tmp_path, text).jobs
    assert jobs["b"].env == jobs["a"].env == (("V", "1e3"), ("W", "on"), ("X", "0x1F"))


def test_without_access_a_workflow_that_lists_nothing_is_read(tmp_path):
    path = tmp_path / "w.yml"
    path.write_text("stager: 1\njobs:\n  a: {run: x, inputs: [here:nowhere]}\n")
    assert read_workflow(path, access=None).files["nowhere"].sources[0].token is None
    path.write_text("stager: 1\njobs:\n  a: {run: x, inputs: ['here:*']}\n")
    with pytest.raises(InvalidInput, match="no access to origins"):
        read_workflow(path, access=None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# comment\n---\nstager: 1\n", WorkflowFormat.NATIVE),
        ('{"stager": 1, "jobs": {}}', WorkflowFormat.NATIVE),
        ('x-pegasus: {apiLang: python}\npegasus: "5.0.4"\nname: w\n', WorkflowFormat.PEGASUS),
        ('{"name": "w", "schemaVersion": "1.4", "workflow": {}}', WorkflowFormat.WFCOMMONS),
    ],
)
def test_formats_are_told_apart_by_content(tmp_path, text, found):
    path = tmp_path / "any.name"
    path.write_text(text)
    assert sniff(path) is found


def test_what_is_no_workflow_is_told_what_would_be(tmp_path):
    path = tmp_path / "w.yml"
    path.write_text("stagr: 1\n")
    with pytest.raises(InvalidInput, match="no workflow.*did you mean 'stager'"):
        sniff(path)
    with pytest.raises(InvalidInput, match="no such file"):
        sniff(tmp_path / "gone.yml")


def test_ten_thousand_jobs_of_one_entry_are_read_with_one_listing(tmp_path):
    text = "stager: 1\njobs:\n  j: {foreach: {i: 1..10000}, run: x, inputs: [here:a], outputs: ['o{i}']}\n  k: {run: x, inputs: ['o*']}\n"
    began = time.process_time()
    workflow = read(tmp_path, text, "a")
    assert time.process_time() - began < 4
    assert len(workflow.jobs) == 10_001 and len(workflow.jobs["k"].inputs) == 10_000


def test_a_directory_of_any_name_holds_a_workflow(tmp_path):
    workflow = read(tmp_path, MONTAGE, "data/region.hdr", "data/raw/a.fits")
    odd = tmp_path / "50%20 #1 ?é"
    assert len(read(odd, MONTAGE, "data/region.hdr", "data/raw/a.fits").jobs) == len(workflow.jobs)


def test_file_urls_are_decoded_and_short_ones_taken_as_they_are(tmp_path):
    text = f"stager: 1\norigins: {{u: 'file://{tmp_path}/a%20b', s: 'file:a%20b'}}\njobs: {{j: {{run: x, inputs: ['u:1', 's:2']}}}}\n"
    workflow = read(tmp_path, text, "a b/1", "a%20b/2")
    assert sorted(workflow.files) == ["1", "2"]


def test_origins_are_not_asked_while_the_text_is_wrong(tmp_path):
    path = tmp_path / "w.yml"
    path.write_text("stager: 1\njobs:\n  j: {run: x, inputs: ['here:*'], cores: 0}\n")
    access = DirectoryAccess(tmp_path)
    with pytest.raises(InvalidInput, match="cores"):
        read_workflow(path, access=access)
    assert access.lists == [] == access.stats
