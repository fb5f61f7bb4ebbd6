"""Parameters that are lists: how they are given, and what they are where a text names them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import given as drawn
from hypothesis import strategies as st

from stager.model.workflow import Workflow
from stager.readers import native
from stager.readers.lines import WorkflowInvalid
from stager.readers.native_lists import Values, list_text, members_of
from stager.readers.native_params import given_values, resubmitted, sent_values
from stager.readers.native_shell import compile_shell
from tests.unit.reader_origins import DirectoryAccess

MEMBERS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12), max_size=6)


def read(place: Path, text: str, *pairs: tuple[str, str], file: Path | None = None) -> Workflow:
    path = place / "w.yml"
    path.write_text("stager: 1\n" + text)
    return native.read(path, access=DirectoryAccess(place), given=given_values(pairs, file))


def told(place: Path, text: str, *pairs: tuple[str, str]) -> list[str]:
    with pytest.raises(WorkflowInvalid) as caught:
        read(place, text, *pairs)
    return [str(each).replace(f"{place}/", "") for each in caught.value.findings]


@drawn(MEMBERS)
@example([])
@example([""])
@example(["[a"])
@example(["a,b", " c "])
def test_a_list_that_is_written_and_read_again_has_the_same_members(members: list[str]) -> None:
    assert members_of(list_text(members)) == tuple(members)


ALL = """params:
  samples: [s1, s2]
  sizes: {type: list of integer, default: [21, 33], separator: ","}
  extra: {type: list, default: []}
jobs:
  align:
    foreach: {sample: "{samples}"}
    run: go {sample} > {sample}.bam
    outputs: ["{sample}.bam"]
  gather:
    run: cat {samples} "{samples}" --in={samples} {sizes} {extra}; x={samples}
    inputs: ["{samples}.bam", {from: "{samples}.bam", as: "in/{samples.stem}.b"}]
    outputs: ["{samples}.out", all]
    env: {BOTH: "{samples}", SIZES: "{sizes}"}
  plain: {run: [go, "{samples}", "--all={samples}", "{sizes}", "{extra}"], outputs: [plain]}
  more: {foreach: {sample: [s0, "{samples}"]}, run: [go, "{sample}"]}
  other: {run: [go], outputs: [other]}
"""


def test_a_list_is_values_entries_arguments_and_words(tmp_path: Path) -> None:
    workflow = read(tmp_path, ALL)
    assert list(workflow.jobs) == ["align[s1]", "align[s2]", "gather", "plain", "more[s0]", "more[s1]", "more[s2]", "other"]
    gather, plain = workflow.jobs["gather"], workflow.jobs["plain"]
    assert [entry.path for entry in gather.inputs] == ["s1.bam", "s2.bam", "in/s1.b", "in/s2.b"]
    assert [entry.lfn for entry in gather.outputs] == ["s1.out", "s2.out", "all"]
    assert gather.shell == 'cat "${samples__1}" "${samples__2}" "${samples}" --in="${samples}" "${sizes}" ; x="${samples}"'
    env = dict(gather.env)
    assert (env["samples"], env["samples__1"], env["samples__2"], env["BOTH"]) == ("s1 s2", "s1", "s2", "s1 s2")
    assert env["sizes"] == env["SIZES"] == "21,33"
    assert plain.argv == ("go", "s1", "s2", "--all=s1 s2", "21,33")
    assert [(each.name, each.value) for each in workflow.params] == [("samples", "s1,s2"), ("sizes", "21,33"), ("extra", "")]
    assert not [note for note in workflow.notes if "used nowhere" in note]


def test_another_member_makes_one_more_job_and_leaves_those_alone_that_name_no_list(tmp_path: Path) -> None:
    before, now = read(tmp_path, ALL), read(tmp_path, ALL, ("samples", "s1, s2,s3"))
    assert set(now.jobs) - set(before.jobs) == {"align[s3]", "more[s3]"}
    assert {name for name in before.jobs if before.jobs[name] != now.jobs[name]} == {"gather", "plain"}


def test_a_list_is_given_as_text_json_yaml_or_in_a_request_and_given_again_by_a_resume(tmp_path: Path) -> None:
    ways = [given_values((("samples", text),)) for text in ("a b,007", '["a b", "007"]', ' [ "a b" , "007" ] ')]
    for text in ("samples: [a b, 007]\n", "samples:\n- a b\n- '007'\n", 'samples: "a b,007"\n', '{"samples": ["a b", "007"]}'):
        (tmp_path / "p.yml").write_text(text)
        ways.append(given_values((), tmp_path / "p.yml"))
    ways.append(sent_values({"samples": ["a b", "007"]}))
    read(tmp_path, ALL)
    for given in ways:
        workflow = native.read(tmp_path / "w.yml", access=DirectoryAccess(tmp_path), given=given)
        assert workflow.params[0].value == "a b,007" and workflow.jobs["plain"].argv[1:3] == ("a b", "007")
        again = native.read(tmp_path / "w.yml", access=DirectoryAccess(tmp_path), given=resubmitted(workflow.params))
        assert again.params == workflow.params
    workflow = native.read(tmp_path / "w.yml", access=DirectoryAccess(tmp_path), given=sent_values({"sizes": [1, 2], "samples": ["a,b"]}))
    assert [each.value for each in workflow.params[:2]] == ['["a,b"]', "1,2"]


COUNTED = """
printf "%s\\n" {v} > words; printf "%s\\n" "{v}" > one
each=({v}); echo ${#each[@]} > count; x={v}
for w in {v}; do printf "%s\\n" "$w"; done > loop
"""


@drawn(members=MEMBERS.filter(bool))
@example(members=["a b", "$(touch pwned)", "*", "'\"", "\n", ";touch pwned"])
@example(members=["x", "touch pwned"])
def test_each_member_reaches_a_shell_as_one_word_and_is_never_run(tmp_path_factory: pytest.TempPathFactory, members: list[str]) -> None:
    place = tmp_path_factory.mktemp("shell")
    values = Values({"v": " ".join(members)}, {"v": members})
    text, holes = compile_shell(COUNTED, ("v",), {"v": len(members)})
    env = {hole.variable: hole.value(values) for hole in holes} | {"PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=place, env=env, check=True, timeout=60)
    found = {name: (place / name).read_bytes().decode() for name in ("words", "loop", "one", "count")}
    assert found["words"] == found["loop"] == "".join(f"{member}\n" for member in members)
    assert found["one"] == " ".join(members) + "\n" and found["count"] == f"{len(members)}\n"
    assert sorted(path.name for path in place.iterdir()) == ["count", "loop", "one", "words"]


@pytest.mark.parametrize(
    ("text", "compiled"),
    [
        ("X={v} go", 'X="${v}" go'),
        ("X=\\\n{v} go", 'X=\\\n"${v}" go'),
        ("go \\\n{v}", 'go \\\n"${v__1}" "${v__2}"'),
        ("go a\\ {v}", 'go a\\ "${v}"'),
        ("go {v}; go {v}|x >({v})", 'go "${v__1}" "${v__2}"; go "${v__1}" "${v__2}"|x >("${v__1}" "${v__2}")'),
        ("go {v}.txt x{v}", 'go "${v}".txt x"${v}"'),
        ("go '{v}' $(cat {v})", 'go \'\'"${v}"\'\' $(cat "${v__1}" "${v__2}")'),
        ("cat <<E\n {v} \nE\n", "cat <<E\n ${v} \nE\n"),
        ("{{v}} {v}", '{v} "${v__1}" "${v__2}"'),
    ],
)
def test_a_list_is_apart_where_it_is_a_word_of_its_own(text: str, compiled: str) -> None:
    assert compile_shell(text, ("v",), {"v": 2})[0] == compiled


WHEN = """params: {samples: {type: list of integer, default: [1, 2]}, one: {type: integer, default: 2}}
jobs:
  a: {when: "2 in samples", run: [go], outputs: [a]}
  b: {when: "3 in samples or 4 in samples", run: [go], outputs: [b]}
  c: {when: "one not in samples", run: [go], outputs: [c]}
"""


def test_a_condition_asks_for_a_member(tmp_path: Path) -> None:
    assert set(read(tmp_path, WHEN).jobs) == {"a"}
    assert set(read(tmp_path, WHEN, ("samples", "03,1")).jobs) == {"b", "c"}


LIST = "params: {v: [a, b], w: [c], one: x}\n"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "params: {v: {type: list of int}}\njobs: {a: {run: [go]}}\n",
            "params.v.type: 'list of int' is no type of a parameter; choose string",
        ),
        ("params: {v: {type: list of integer, default: [a]}}\njobs: {a: {run: [go]}}\n", "params.v: 'a' is not a whole number"),
        ("params: {v: {type: list, choices: [a], default: 'a,b'}}\njobs: {a: {run: [go]}}\n", "params.v: 'b' is unknown; choose a"),
        ("params: {v: {type: list, default: 'a,,b'}}\njobs: {a: {run: [go]}}\n", "params.v: a member of the list is empty; write a,b,c"),
        (
            "params: {v: {type: integer, default: [1]}}\njobs: {a: {run: [go]}}\n",
            "the default is a list, and the type is integer; write type: list of",
        ),
        (
            "params: {v: {separator: ','}}\njobs: {a: {run: [go]}}\n",
            "params.v.separator: only the members of a list are joined; write type: list",
        ),
        ("params: {v: [a, [b]]}\njobs: {a: {run: [go]}}\n", "params.v[1]: this should be a single value, and is a list"),
        ("params: {v: [a, 'https://me:hunter2@h/x']}\njobs: {a: {run: [go]}}\n", "the value is a URL with a password in it"),
        (LIST + "jobs: {a: {run: 'go {v.stem}'}}\n", "{v.stem} is a part of one text, and v is a list"),
        (LIST + "jobs: {a: {run: [go], outputs: ['{v}-{w}']}}\n", "v and w are lists, and an entry takes its members from one"),
        (LIST + "jobs: {a: {run: [go], when: v == 'a'}}\n", "'v' is a list; ask for one of its members, as in 'VALUE' in v"),
        (LIST + "jobs: {a: {run: [go], when: v}}\n", "'v' is a list; ask for one of its members"),
        (LIST + "jobs: {a: {run: [go], when: \"'a' in one\"}}\n", "'one' is no list; behind 'in' stands one"),
        (
            "params: {v: {type: list, default: ''}}\njobs: {a: {run: [go], foreach: {x: '{v}'}}}\n",
            "the list {v} is empty, so the job would never",
        ),
        (LIST + "jobs: {a: {run: 'go $(( {v} ))'}}\n", "{v} stands where a shell would evaluate it as arithmetic"),
    ],
)
def test_what_is_wrong_names_its_place(tmp_path: Path, text: str, finding: str) -> None:
    findings = told(tmp_path, text)
    assert len(findings) == 1 and finding in findings[0] and "hunter2" not in findings[0], findings


def test_a_list_for_what_is_none_is_refused_where_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "p.yml").write_text("one: [a, b]\n")
    (tmp_path / "w.yml").write_text("stager: 1\n" + LIST + "jobs: {a: {run: [go]}}\n")
    for given, place in ((given_values((), tmp_path / "p.yml"), "p.yml:1:6: one:"), (sent_values({"one": ["a"]}), "params: one:")):
        with pytest.raises(WorkflowInvalid, match="the value of one is one string, and this is a list") as caught:
            native.read(tmp_path / "w.yml", given=given)
        assert place in str(caught.value)
    for text in ('[1, {"a": 2}]', "[1,", "a,"):
        (message,) = told(tmp_path, LIST + "jobs: {a: {run: [go]}}\n", ("v", text))
        assert "--param: v:" in message and 'as in ["a", "b, c"]' in message, message


def test_braces_of_programs_stay_as_they_are(tmp_path: Path) -> None:
    job = read(tmp_path, LIST + "jobs: {a: {run: \"awk '{print v}' {{v}} ${v}\"}}\n").jobs["a"]
    assert job.shell == "awk '{print v}' {v} ${v}" and job.env == (("v", "a b"),)
    assert json.dumps(sent_values({"v": [True, 1.5]})["v"].items[0].text) == '"true"'
