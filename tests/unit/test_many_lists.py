"""Many jobs that each scatter over a list of their own: who waits for whom is found without holding each against all."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from stager.readers.native_scatter import expanded
from stager.readers.native_scattering import Patterns, may_meet
from tests.unit.test_reader_native_params import read

GLOBS = st.text(st.sampled_from("ab*?[]/."), max_size=6)
LISTS = 1000
TEXT = f"""jobs:
  list: {{foreach: {{sample: 001..{LISTS}}}, run: "echo {{sample}}", outputs: ["{{sample}}.list"]}}
  part:
    foreach: {{sample: 001..{LISTS}}}
    scatter: {{over: "{{sample}}.list", as: x, expect: 2}}
    run: "echo {{sample}} {{x}}"
    outputs: ["{{sample}}.{{x}}.part"]
  gather: {{foreach: {{sample: 001..{LISTS}}}, run: "echo {{sample}}", inputs: ["{{sample}}.*.part"], outputs: ["{{sample}}.all"]}}
  some: {{run: echo, inputs: ["*.1.part", "0001.all"], outputs: [some]}}
  all: {{run: echo, inputs: ["*.all"], outputs: [all]}}
"""


@given(globs=st.lists(GLOBS, max_size=8), others=st.lists(GLOBS, max_size=3))
@example(globs=["a*b", "*", "[a]", "a"], others=["ab*", "*ab"])
def test_patterns_are_found_by_their_ends(globs: list[str], others: list[str]) -> None:
    assert set(Patterns(globs).meeting(others)) == {glob for glob in globs if any(may_meet(glob, other) for other in others)}


def test_a_thousand_lists_are_read_and_grown_in_seconds(tmp_path: Path) -> None:
    begun = time.process_time()
    before = read(tmp_path, TEXT)
    assert len(before.scatters) == LISTS and before.jobs["gather[0007]"].after == ()
    assert len(before.jobs["some"].after) == LISTS - 1, "a member of each list may be called so, and the one of the first is read"
    assert time.process_time() - begun < 3
    begun = time.process_time()
    known = expanded(before, {f"part[{number:04d}.list]": (("x1",), ("y",)) for number in range(1, LISTS, 2)})
    assert len([each for each in known.scatters if each.rows is None]) == LISTS // 2
    assert time.process_time() - begun < 3
