"""The native format: what is wrong is said at once, with file, line, column, key and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.errors import Refused
from stager.readers import native, pegasus
from stager.readers.lines import FINDINGS_MAX, NODES_MAX, WorkflowInvalid, compose
from tests.unit.reader_origins import DirectoryAccess


def findings(tmp_path: Path, text: str, **options) -> list[str]:
    """`line:column: key: message` of each."""
    path = tmp_path / "w.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(WorkflowInvalid) as caught:
        native.read(path, access=DirectoryAccess(tmp_path), **options)
    for finding in caught.value.findings:
        assert str(finding).startswith(f"{path}:") and finding.place.line > 0
    assert caught.value.code == "workflow_invalid"
    return [str(finding).removeprefix(f"{path}:") for finding in caught.value.findings]


def job(line: str) -> str:
    return f"stager: 1\njobs:\n  a: {{{line}}}\n"


def two(one: str, other: str, outputs: str) -> str:
    """Two origins, `o` and `p`."""
    return f"stager: 1\norigins: {{o: '{one}', p: '{other}'}}\njobs: {{a: {{run: x, outputs: {outputs}}}}}\n"


def web(job: str) -> str:
    """An origin `o` that is a web server."""
    return f"stager: 1\norigins: {{o: 'https://h'}}\njobs: {{{job}}}\n"


ONE_FINDING = [
    # keys and values
    ("stager: 1\nnaem: x\njobs: {a: {run: x}}\n", "2:1: naem: unknown key; did you mean 'name'?"),
    (job("run: x, inptus: [b]"), "3:15: jobs.a.inptus: unknown key; did you mean 'inputs'?"),
    ("jobs: {a: {run: x}}\n", "1:1: stager: the format's version is missing; start the file with stager: 1"),
    ("stager: 2\nnew: x\n", "1:9: stager: format '2' is not read by this version of stager, which reads 1"),
    ("stager: 1\n", "1:1: jobs: the workflow has no jobs"),
    ("stager: 1\njobs: {}\n", "2:7: jobs: the workflow has no jobs"),
    ("stager: 1\njobs:\n", "2:6: jobs: the workflow has no jobs"),
    ("stager: 1\njobs: [a]\n", "2:7: jobs: this should be a mapping (key: value), and is a list"),
    ("stager: 1\njobs: {a b: {run: x}}\n", "2:8: jobs.a b: 'a b' cannot name a job"),
    (job("cores: 1"), "3:6: jobs.a: the job has nothing to run"),
    (job("run: []"), "3:12: jobs.a.run: the list is empty"),
    (job("run: x, cores: 0"), "3:22: jobs.a.cores: '0' is not a whole number of 1 or more"),
    (job("run: x, memory: much"), "3:23: jobs.a.memory: 'much' is not a size"),
    (job("run: x, memory_limit: some"), "3:29: jobs.a.memory_limit: 'some' is not a size"),
    (job("run: x, memory: 2 GB, memory_limit: 1 GB"), "3:43: jobs.a.memory_limit: a job may use what it declares"),
    (job("run: x, isolate: maybe"), "3:24: jobs.a.isolate: 'maybe' is neither on nor off"),
    (job("run: x, timeout: 0"), "3:24: jobs.a.timeout: a job needs a time above 0"),
    (job("run: x, idempotent: no"), "3:27: jobs.a.idempotent: 'no' is neither true nor false"),
    (job("run: x, env: {1X: y}"), "3:21: jobs.a.env.1X: '1X' cannot name an environment variable"),
    (job("run: x, env: {AWS_SECRET_ACCESS_KEY: hunter2}"), "write env_pass: [AWS_SECRET_ACCESS_KEY]"),
    (job("run: x, type: ../t"), "jobs.a.type: '../t' leaves its directory"),
    (job("run: x") + "io_hints: {b: {}}\n", "4:12: io_hints.b: no job is of type 'b'"),
    (job("run: x") + "io_hints: {a: {read_fraction: -1}}\n", "'-1' is not a fraction"),
    (job("run: x") + "io_hints: {a: {read_fraction: 1e99}}\n", "'1e99' is not a fraction"),
    (job("run: x") + "on_failure: stopp\n", "4:13: on_failure: 'stopp' is unknown; choose continue or stop; did you mean 'stop'?"),
    # the graph
    ("stager: 1\njobs:\n  a: {run: x}\n  a: {run: y}\n", "4:3: a: the same key twice; keep one of them"),
    (
        "stager: 1\njobs:\n  a: {run: x, inputs: [q], outputs: [p]}\n  b: {run: x, inputs: [p], outputs: [q]}\n",
        "3:3: jobs.a: jobs wait for each other in a circle: 'b' waits for 'a' by 'p', 'a' waits for 'b' by 'q'",
    ),
    (
        "stager: 1\njobs:\n  a: {run: x, outputs: [p], after: b}\n  b: {run: x, inputs: [p]}\n",
        "'a' waits for 'b' by 'after'",
    ),
    (job("run: x, after: a"), "3:22: jobs.a.after: 'a' would wait for itself"),
    (job("run: x, after: [b]"), "3:23: jobs.a.after[0]: there is no job 'b'"),
    (
        "stager: 1\njobs:\n  a: {run: x, outputs: [p]}\n  b: {run: x, outputs: [p]}\n",
        "4:25: jobs.b.outputs[0]: 'p' has two producers: 'a' and 'b'; give each its own name",
    ),
    ("stager: 1\nfiles: {p: here:q}\njobs: {a: {run: x, outputs: [p]}}\n", "'p' is made here, and comes from an origin as well"),
    (job("run: x, inputs: [b]"), "3:24: jobs.a.inputs[0]: no job makes 'b' and 'files:' does not name it"),
    (job("run: x, inputs: ['b*']"), "3:24: jobs.a.inputs[0]: 'b*' matches no file"),
    ("stager: 1\njobs:\n  a: {run: x, outputs: [d/]}\n  b: {run: x, inputs: [d/f]}\n", "'d/f' lies in the directory output 'd/'"),
    ("stager: 1\njobs:\n  a: {run: x, outputs: [f]}\n  b: {run: x, inputs: [f/]}\n", "'f' is a file; write it without '/'"),
    # paths
    (job("run: x, outputs: [/etc/passwd]"), "3:25: jobs.a.outputs[0]: '/etc/passwd' is absolute"),
    (job("run: x, outputs: [b/../../c]"), "'b/../../c' leaves its directory by '..'"),
    (job('run: x, outputs: ["b\\0c"]'), "holds a NUL character"),
    (job("run: x, inputs: ['here:../x']"), "'../x' leaves its directory by '..'"),
    (job("run: x, outputs: {b: 'here:../x'}"), "'../x' leaves its directory by '..'"),
    (job("run: x, outputs: [.stager/x]"), "'.stager/x' is reserved"),
    (job(f"run: x, outputs: [{'x' * 256}]"), "is too long"),
    (job("run: x, outputs: [b, b]"), "the output 'b' is listed twice"),
    (job("run: x, outputs: [b, b/c]"), "output 'b/c' lies inside output 'b'"),
    (job("run: x, outputs: ['*.txt']"), "'*.txt' is a pattern, and outputs are named"),
    (job("run: x, outputs: [{to: 'here:x'}]"), "written with one of file: NAME or dir: NAME/"),
    # origins and secrets
    ("stager: 1\norigins: {lab: 's3://b'}\njobs: {a: {run: x, inputs: ['lba:x']}}\n", "there is no origin 'lba'; did you mean 'lab'?"),
    (job("run: x, inputs: ['s3://b/k']"), "URLs go under 'origins:'"),
    (job("run: x, outputs: {b: c}"), "3:28: jobs.a.outputs.b: 'c' names no origin"),
    ("stager: 1\norigins: {o: 'ftp://h/x'}\njobs: {a: {run: x}}\n", "'ftp' is no kind of origin"),
    ("stager: 1\norigins: {o: 'sftp://h/../x'}\njobs: {a: {run: x}}\n", "the URL's path has '..'"),
    ("stager: 1\norigins: {o: {url: 'sftp://h/x', endpoint: 'https://e'}}\njobs: {a: {run: x}}\n", "origins.o.endpoint: unknown key"),
    (
        "stager: 1\norigins: {o: {url: 'sftp://h/x', credentials: 'profile:p'}}\njobs: {a: {run: x}}\n",
        "'profile' credentials do not fit a sftp",
    ),
    ("stager: 1\norigins: {o: {url: 's3://b', endpoint: 'http://e'}}\njobs: {a: {run: x}}\n", "add allow_http: true"),
    ("stager: 1\norigins: {o: 'https://h'}\njobs: {a: {run: x, outputs: {p: 'o:p'}}}\n", "'o' is http, which can only be read"),
    (
        web("a: {run: x, inputs: ['o:*.txt']}"),
        "3:29: jobs.a.inputs[0]: origin 'o' is http, which cannot be listed; name its files one by one",
    ),
    (web("a: {run: x, inputs: ['o:d/']}"), "3:29: jobs.a.inputs[0]: origin 'o' is http, which cannot be listed"),
    (web("a: {run: x, inputs: ['o:']}"), "3:29: jobs.a.inputs[0]: origin 'o' is http, which cannot be listed"),
    (web("a: {run: x, foreach: {i: 'o:*.txt'}}"), "jobs.a.foreach.i: origin 'o' is http, which cannot be listed"),
    (web("a: {run: x, inputs: ['o:f?x=1']}"), "with literal: true the characters *, ? and [ are themselves (a query needs queries: true"),
    (web("a: {run: x, inputs: [{from: 'o:f?sig=1', literal: true}]}"), "the query holds a key, token or signature"),
    (web("a: {run: x, outputs: [p]}") + "finals: {p: 'o:p'}\n", "finals.p: origin 'o' is http, which can only be read"),
    (web("a: {run: x, outputs: [p]}") + "spill: 'o:p'\n", "4:8: spill: origin 'o' is http, which can only be read"),
    (
        "stager: 1\norigins: {o: {url: 'http://h', credentials: 'env:X'}}\njobs: {a: {run: x}}\n",
        "origins.o.credentials: these would go over http",
    ),
    (
        "stager: 1\norigins: {o: {url: 'https://h', credentials: agent}}\njobs: {a: {run: x}}\n",
        "'agent' credentials do not fit a http origin; use env",
    ),
    (
        "stager: 1\norigins: {o: {url: 'https://h', queries: maybe}}\njobs: {a: {run: x}}\n",
        "origins.o.queries: 'maybe' is neither true nor false",
    ),
    # destinations
    (job("run: x, outputs: {b: 'here:z', c: 'here:z'}"), "'c' and 'b' have the same destination here:z"),
    ("stager: 1\norigins: {o: 'file:d'}\njobs: {a: {run: x, outputs: {b: 'o:z', c: 'here:d/z'}}}\n", "have the same destination"),
    (job("run: x, outputs: {b/: 'here:z', c: 'here:z/y'}"), "the destination of 'c' lies inside that of 'b'"),
    (two("file:d", "file:d/z", "{b/: 'o:z', c: 'p:y'}"), "the destination of 'c' lies inside that of 'b'"),
    (two("sftp://h/d", "sftp://me@H:22/d", "{b: 'o:z', c: 'p:z'}"), "'c' and 'b' have the same destination p:z"),
    (two("sshfs://h/d", "sftp://h/d/z", "{b/: 'o:z', c: 'p:y'}"), "the destination of 'c' lies inside that of 'b'"),
    (two("file:///", "file:///d", "{b: 'o:d/z', c: 'p:z'}"), "'c' and 'b' have the same destination p:z"),
    (job("run: x, outputs: [b], inputs: [b]"), "'b' is an input and an output"),
    (job("run: x, outputs: [b]") + "finals: {c: 'here:c'}\n", "4:10: finals.c: no job makes 'c'"),
    (job("run: x, outputs: {b: 'here:b'}") + "finals: {b: 'here:c'}\n", "'b' has a destination already"),
    (job("run: x, outputs: [b]") + "finals: {'*': 'here:c'}\n", "end the destination with '/'"),
    # foreach
    (job("run: x, foreach: {i: []}"), "the list is empty, so the job would never run"),
    (job("run: x, foreach: {i: 'here:*.nope'}"), "3:28: jobs.a.foreach.i: 'here:*.nope' matches no file; looked at file://"),
    (job("run: x, foreach: {i: nope}"), "'nope' names no files; write a set"),
    (job("run: x, foreach: {PATH: 1..2}"), "'PATH' cannot be a foreach key"),
    (job("run: x, foreach: {i: [1, 1]}"), "two rows make the same job 'a[1]'"),
    (job("run: x, foreach: {zip: {i: 1..2, j: 1..3}}"), "zipped keys need equally many values: i has 2, j has 3"),
    (job("run: x, foreach: {i: 1..400, j: 1..300}"), "foreach makes 120,000 jobs, more than the 100,000 allowed"),
    (job("run: x, foreach: {i: 1..3}, env: {i: x}"), "the foreach key 'i' is a variable of the job already"),
    (
        job("run: x, foreach: {tile: 1..3}, outputs: ['{tiel}']"),
        "{tiel} is no foreach key or parameter (known: tile); did you mean",
    ),
    (job("run: x, foreach: {i: 1..2}, outputs: [same]"), "'same' has two producers: 'a[1]' and 'a[2]'"),
    # YAML
    ("stager: 1\njobs: {a: {run: x}}\n---\nstager: 1\n", "3:1: a second document starts here"),
    ("stager: 1\njobs: {a: {run: !!python/name:os.system x}}\n", "2:17: tag:yaml.org,2002:python/name:os.system: tags are not read"),
    ("stager: 1\nx-d: &d {run: x}\njobs: {a: {<<: *d}}\n", "3:12: <<: merge keys are not read"),
    ("stager: 1\njobs: [\n", "this is not YAML"),
    ("stager: 1\njobs: *nowhere\n", "2:7: alias *nowhere names no anchor before it"),
    ("stager: 1\njobs: &a [*a]\n", "alias *a stands inside what it names"),
    ("", "1:1: the file is empty"),
    (b"stager: 1\nname: \xff\xfe\n", "2:7: this byte is not UTF-8"),
    ("stager: 1\njobs: {? [a] : x}\n", "a key must be a plain word"),
    ("stager: 1\njobs: " + "[" * 100_000 + "]" * 100_000 + "\n", "nested deeper than"),
]


@pytest.mark.parametrize(("text", "expected"), ONE_FINDING, ids=range(len(ONE_FINDING)))
def test_one_mistake_is_told_with_its_place_and_fix(tmp_path, text, expected):
    assert any(expected in finding for finding in findings(tmp_path, text)), findings(tmp_path, text)


def test_mistakes_of_all_sections_come_at_once(tmp_path):
    text = """
stager: 1
on_failure: x
origins: {lab: {url: 'sftp://h/d', port: 3}}
jobs:
  a: {run: x, cores: many}
  b: {run: x, inputs: [q], outputs: [p]}
  c: {run: x, inputs: [p, nowhere], outputs: [q]}
"""
    found = findings(tmp_path, text)
    assert [finding.split(":")[0] for finding in found] == ["3", "4", "6", "7", "8"]
    assert "in a circle" in found[3] and "no job makes 'nowhere'" in found[4]


def test_all_missing_inputs_come_at_once_with_origin_and_path(tmp_path):
    (tmp_path / "there.txt").write_text("x")
    (tmp_path / "sub").mkdir()
    text = """
stager: 1
files: {named: {from: here:gone0}}
jobs:
  a: {run: x, inputs: [here:gone1, here:there.txt, named]}
  b: {foreach: {i: 2..4}, run: x, inputs: ["here:gone{i}", here:sub]}
  c: {foreach: {f: "here:*.none"}, run: x, inputs: ["{f}"]}
"""
    found = findings(tmp_path, text)
    for name in ("gone0", "gone1", "gone2", "gone3", "gone4"):
        assert any(f"there is no here:{name} (at file://{tmp_path}/{name})" in finding for finding in found), name
    assert any("here:sub is a directory; write here:sub/" in finding for finding in found)
    assert any("'here:*.none' matches no file" in finding for finding in found)
    assert found[0].startswith("3:23: files.named.from:")
    assert not any("there.txt" in finding for finding in found)


@pytest.mark.slow
def test_the_same_mistake_in_many_jobs_is_told_a_few_times(tmp_path):
    found = findings(tmp_path, job("foreach: {i: 1..5000}, run: x, inputs: ['nowhere{i}']"))
    assert len(found) == 5
    with pytest.raises(WorkflowInvalid, match="… and 4995 more, not shown"):
        native.read(tmp_path / "w.yml")


@pytest.mark.parametrize(
    "origin",
    [
        "'sftp://me:hunter2@h/d'",
        "'https://hunter2@h/d'",
        "'s3://AKIA:hunter2@b/p'",
        "'https://h/d?X-Amz-Signature=hunter2'",
        "'s3://b/p?key=hunter2'",
        "{url: 's3://b', secret_access_key: hunter2}",
        "{url: 's3://b', credentials: hunter2}",
        "{url: 'sftp://h', password: hunter2}",
        "{url: 's3://b', endpoint: 'https://u:hunter2@e'}",
        "{url: 's3://b', Secret_Access_Key: hunter2}",
    ],
)
def test_secrets_are_refused_and_not_repeated(tmp_path, origin):
    found = findings(tmp_path, f"stager: 1\norigins: {{o: {origin}}}\njobs: {{a: {{run: x}}}}\n")
    assert len(found) == 1 and "secrets do not belong in a workflow file" in found[0]
    assert "hunter2" not in found[0]


def test_an_input_is_never_overwritten_by_a_final(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_text("x")
    for outputs, message in [
        ("{o: 'here:in/x'}", "final 'o' would overwrite here:in/x"),
        ("{o/: 'here:in'}", "directory 'o' would be written over here:in/x"),
        ("{o: 'here:in/x/y'}", "lies below here:in/x, which is a file"),
    ]:
        (found,) = findings(tmp_path, job(f"run: c, inputs: ['here:in/x'], outputs: {outputs}"))
        assert message in found and "jobs.a.outputs.o" in found


def test_two_inputs_at_one_path_name_both(tmp_path):
    for name in ("p", "q"):
        (tmp_path / name).write_text(name)
    (found,) = findings(tmp_path, job("run: x, inputs: {z: 'here:p', ./z: 'here:q'}"))
    assert "two inputs at 'z' in the sandbox: 'p' and 'q'" in found and found.startswith("3:42: jobs.a.inputs../z")


def test_a_name_from_an_origin_that_is_no_utf8_is_named(tmp_path):
    (tmp_path / "in").mkdir()
    open(bytes(tmp_path / "in") + b"/\xff", "w").close()
    (found,) = findings(tmp_path, job("run: x, inputs: ['here:in/*']"))
    assert "is not UTF-8; rename the file" in found


def test_aliases_cannot_grow_without_bound():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(WorkflowInvalid, match=f"more than {NODES_MAX:,} values"):
        compose("\n".join(lines), "w.yml")


def test_a_file_that_is_wrong_everywhere_is_not_told_whole(tmp_path):
    """What a service would answer is no longer than anybody reads, whatever was sent to it."""
    path = tmp_path / "w.yml"
    path.write_text("stager: 1\n" + "".join(f"key{number}: 1\n" for number in range(3 * FINDINGS_MAX)))
    with pytest.raises(WorkflowInvalid, match="more, not shown") as caught:
        native.read(path)
    assert len(caught.value.findings) == FINDINGS_MAX
    broken = "".join(f"- {{type: job, name: x, id: j{number}, uses: 1}}\n" for number in range(3 * FINDINGS_MAX))
    path.write_text(f'pegasus: "5.0"\nname: w\njobs:\n{broken}')
    with pytest.raises((WorkflowInvalid, Refused), match="more, not shown") as caught:
        pegasus.read(path, access=None)
    assert len(caught.value.findings) == FINDINGS_MAX


def test_the_file_itself_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("stager.readers.lines.TEXT_BYTES_MAX", 2**20)
    path = tmp_path / "w.yml"
    path.write_text("stager: 1\n#" + "x" * 2**20)
    with pytest.raises(Exception, match="larger than 1 MiB"):
        native.read(path)


def test_nothing_and_the_empty_text_are_told_apart(tmp_path):
    path = tmp_path / "w.yml"
    path.write_text("stager: 1\nname:\norigins:\nfiles: ~\njobs: {a: {run: x, cores: , env: {A: ''}, inputs: null, outputs: {o: }}}\n")
    workflow = native.read(path)
    assert workflow.jobs["a"].env == (("A", ""),)
    assert workflow.jobs["a"].outputs[0].lfn == "o" and workflow.name == "w"
    (found,) = findings(tmp_path, job("run: ''"))
    assert "the command is empty" in found
