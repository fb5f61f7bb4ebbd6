"""What a beginner gets wrong, and the word that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.readers import native
from stager.readers.lines import WorkflowInvalid

A = "jobs:\n  a: {run: x, "


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (A + "cpus: 2}", "jobs.a.cpus: unknown key; did you mean 'cores'?"),
        (A + "mem: 1 GB}", "did you mean 'memory'?"),
        (A + "walltime: 1h}", "did you mean 'timeout'?"),
        (A + "depends_on: b}", "did you mean 'after'?"),
        ("jobs:\n  a: {command: x}", "did you mean 'run'?"),
        ("spill_origin: 'here:s'\n" + A + "}", "spill_origin: unknown key; did you mean 'spill'?"),
        ("cores: 3\n" + A + "}", "cores: 'cores' stands in a job (jobs: {NAME: {cores: …}}), or under 'defaults:' for all jobs"),
        ("jobs:\n  a:\n  run: x", "jobs.run: 'run' is a key of a job, and stands where a job's name would: indent it further"),
        (A + "foreach: {Tile: [1]}}", "write tile, and {tile} where it is used"),
        (A + "foreach: {tileName: [1]}, outputs: ['{tileName}.x']}", "write tile_name, and {tile_name} where it is used"),
        (A + "foreach: {PATH: [1]}}", "write path, and {path}"),
        (A + "foreach: {é: [1]}}", "choose another, as in tile or tile_2"),
        (A + "outputs: {b: /data/out/b}}", 'write origins: {out: "file:/data/out"} at the top, and out:b here'),
        (A + "outputs: {b: 'here:/data/out/b'}}", 'write origins: {out: "file:/data/out"} at the top, and out:b here'),
        (A + "outputs: {b: ~/b}}", "'~' is not read here"),
        (A + "inputs: [/data/b]}", 'write origins: {data: "file:/data"} at the top, and data:b here'),
        (A + "inputs: [~/b]}", "name its directory under 'origins:' in full, and data:b here"),
        ("origins: {d: 'file:$HOME/d'}\n" + A + "}", "$HOME is not replaced in URLs"),
        ("origins: {d: 'file://$HOME/d'}\n" + A + "}", "$HOME is not replaced in URLs"),
        ("jobs:\n  a:\n    run: echo\n   outputs: [a]\n", ":5:4: this is not YAML: this line is indented by 3"),
        ("origins: {d: 'file:///${HOME}/d'}\n" + A + "}", "${HOME} is not replaced in URLs"),
        ("jobs:\n\ta: {run: x}", ":3:1: this is not YAML: a tab indents this line; indent with spaces"),
        (
            "jobs:\n  a:\n    run: x\n   cores: 2",
            ":5:4: this is not YAML: this line is indented by 3, which fits none of the keys above it",
        ),
        ("jobs:\n  a:\n    run: x\n      cores: 2", "this line is indented further than the one above it, which has a value already"),
        ("jobs:\n  a:\n    run: echo a: b", "a second ': ' in one line; put the value in quotes"),
        ("jobs:\n  a:\n    run: {text} x", "put the whole value in quotes"),
        ('jobs:\n  a:\n    run: "x" y', "put the whole value in quotes"),
    ],
)
def test_a_beginners_slip_gets_the_word_that_helps(tmp_path: Path, body: str, words: str) -> None:
    (tmp_path / "w.yml").write_text(f"stager: 1\n{body}\n")
    with pytest.raises(WorkflowInvalid) as caught:
        native.read(tmp_path / "w.yml")
    assert words in str(caught.value)
    assert len(caught.value.findings) <= 3, "one slip is not told many times over"


@pytest.mark.parametrize("url", ["file:///a%24HOME", "file:a$b"])
def test_a_dollar_that_is_meant_can_be_written(tmp_path: Path, url: str) -> None:
    (tmp_path / "w.yml").write_text(f"stager: 1\norigins: {{d: '{url}'}}\n{A}outputs: {{b: 'd:b'}}}}\n")
    assert "$" in native.read(tmp_path / "w.yml").origins["d"].url.replace("%24", "$")
