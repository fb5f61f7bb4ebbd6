"""What of a workflow goes to a service: read as its readers read it, and refused in words where it cannot go."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager import rest
from stager.cli.remote import text_of
from stager.cli.sent_directory import SentDirectories, origin_urls
from stager.model.errors import InvalidInput
from stager.readers.native_params import given_values

ORIGINS = """stager: 1
params: {night: m31}
origins: {a: "file:{night}/raw", b: {url: "file:./b", bandwidth: 1 MB/s}, c: [x], d: {bandwidth: 1}, 1: "file:one"}
jobs: {a: {run: go}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "w.yml"


def test_urls_are_those_that_are_written(file: Path) -> None:
    file.write_text(ORIGINS)
    assert origin_urls(file, {}) == {"here": "file:.", "a": "file:m31/raw", "b": "file:./b", "c": "", "d": "", "1": "file:one"}
    assert origin_urls(file, given_values((("night", "m33"),)))["a"] == "file:m33/raw"


@pytest.mark.parametrize(
    "text",
    [
        "stager: 1\nx-when: 2024-13-45\njobs: {a: {run: go}}\n",
        "stager: 1\nx-odd: !!python/object:os.system {}\njobs: {a: {run: go}}\n",
        "stager: 1\nx-deep: " + "[" * 5000 + "]" * 5000 + "\njobs: {a: {run: go}}\n",
        "stager: 1\norigins: 7\njobs: {a: {run: go}}\n",
        "- stager: 1\n",
        "",
    ],
)
def test_a_text_that_another_reader_stumbles_over_is_told_by_ours(file: Path, text: str) -> None:
    file.write_text(text)
    if "x-when" in text:
        assert origin_urls(file, {}) == {"here": "file:."} and SentDirectories(file, {}).workflow is not None
        return
    assert origin_urls(file, {}) in ({}, {"here": "file:."})
    with pytest.raises(InvalidInput, match=r"w\.yml"):
        SentDirectories(file, {})


def test_rules_and_catalogs_that_are_not_utf8_are_told(file: Path) -> None:
    file.write_text('stager: 1\nfiles: {a: "here:a"}\njobs: {a: {run: go, inputs: [a]}}\n')
    (file.parent / "a").touch()
    (file.parent / ".stagerignore").write_bytes(b"caf\xe9\n")
    with pytest.raises(InvalidInput, match=r"\.stagerignore:1:4: this byte is not UTF-8"):
        SentDirectories(file, {})
    file.write_text("pegasus: '5.0'\nname: w\njobs: []\n")
    (file.parent / "replicas.yml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InvalidInput, match=r"replicas\.yml:1:6: this byte is not UTF-8"):
        text_of(file, rest.Options(), {}, None)


def test_what_no_request_has_is_told_by_its_name(file: Path) -> None:
    file.write_text("pegasus: '5.0'\nname: w\njobs: []\n")
    for name, value in (("a b", "1"), ("v", "x" * 100_001)):
        with pytest.raises(InvalidInput, match=f"params.{name}") as caught:
            text_of(file, rest.Options(), given_values(((name, value),)), None)
        assert caught.value.code == "bad_parameter" and "x" * 100 not in caught.value.message
    jobs = [f"  a{number}: {{foreach: t{number}.tsv, run: go}}" for number in range(rest.FILES_MAX + 1)]
    file.write_text("\n".join(["stager: 1", "jobs:", *jobs]))
    for number in range(len(jobs)):
        (file.parent / f"t{number}.tsv").write_text("x\n1\n")
    with pytest.raises(InvalidInput, match="files: Dictionary should have at most"):
        text_of(file, rest.Options(), {}, SentDirectories(file, {}))


def test_a_value_that_a_workflow_does_not_take_is_told_before_anything_goes(file: Path) -> None:
    """Also where only the service asks an origin."""
    file.write_text("stager: 1\nfiles: {a: 'far:*.txt'}\norigins: {far: 'sftp://h/d'}\njobs: {a: {run: go, inputs: [a]}}\n")
    with pytest.raises(InvalidInput, match="there is no parameter 'a b'"):
        SentDirectories(file, {}, given_values((("a b", "1"),)))
