"""Paths and globs of the readers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stager.readers.paths import NameIndex, clean_path, escape_wildcards, fixed_directory, may_match_below, pattern_of


@settings(max_examples=500, deadline=None)
@given(st.text("ab./ \0*'", max_size=12))
def test_a_clean_path_stays_below_where_it_is_joined(text):
    try:
        path = clean_path(text)
    except ValueError:
        return
    assert "\0" not in path and not path.startswith("/")
    joined = (Path("/base") / path).resolve()
    assert joined.is_relative_to("/base") and joined != Path("/base")
    assert clean_path(path) == path


@pytest.mark.parametrize(
    ("glob", "matches", "others"),
    [
        ("*.txt", ["a.txt", "a b.txt"], [".txt", ".a.txt", "d/a.txt", "a.txtx"]),
        ("d/*", ["d/a"], ["d/.a", "d/a/b", "d/"]),
        ("d/.*", ["d/.a"], ["d/a"]),
        ("**/*.x", ["a.x", "d/a.x", "d/e/a.x"], ["d/.e/a.x", ".d/a.x", "a.y"]),
        ("d/**", ["d/a", "d/e/a"], ["d", "a", "d/.e/a"]),
        ("d/**/z", ["d/z", "d/e/f/z"], ["d/ez"]),
        ("[a-c]?", ["a1", "cx"], ["d1", "a", "a/"]),
        ("[!a]x", ["bx"], ["ax", "/x"]),
        ("a[*]b", ["a*b"], ["acb"]),
        ("a[[]1]", ["a[1]"], ["a1"]),
        ("a.b+(c)^$", ["a.b+(c)^$"], ["aab+(c)^$"]),
        ("*\n*", ["a\nb"], ["ab"]),
        ("a[+-9]b", ["a0b", "a.b"], ["a/b"]),
        ("a[^b]c", ["abc", "a^c"], ["adc"]),
        ("**/**/x*y*/**", ["xy/a", "d/xayb/e/f"], ["xy", "d/x/y/f", "xy/.a"]),
    ],
)
def test_globs(glob, matches, others):
    pattern = pattern_of(glob)
    assert [name for name in [*matches, *others] if pattern.fullmatch(name)] == matches


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(st.lists(st.sampled_from(["**", "*", "?", "a", "b", ".", "[ab]", "/", "/"]), max_size=14), st.text("ab./", max_size=14))
@example(["**", "/", "a", "/", "b", "/", "**", "/", "a", "/", "*"], "a/a/b/b/a/a")
@example(["*", "a", "*", "b", "a", "*"], "aabbaba")
def test_a_pattern_that_is_looked_for_without_going_back_matches_what_it_would_with_it(words, name):
    pattern = pattern_of("".join(words))
    patient = re.compile(pattern.pattern.replace("(?>", "(?:").replace("*?", "*"), re.DOTALL)
    assert bool(pattern.fullmatch(name)) == bool(patient.fullmatch(name))


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("*a" * 40 + "*b*a", "a" * 250),
        ("**/a/" * 40 + "**/b/**/a", "/".join("a" * 1000)),
        ("*/" * 300 + "**/" * 300 + "b", "/".join("a" * 1500)),
    ],
)
def test_no_pattern_takes_long_whatever_it_is_held_against(glob, name):
    """A stranger writes both, and while Python looks for a match nothing else of the process goes on."""
    code = "import sys; from stager.readers.paths import pattern_of; assert not pattern_of(sys.argv[1]).fullmatch(sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, glob, name], check=True, timeout=60)


@pytest.mark.parametrize("glob", ["a[", "a[!", "a[z-a]"])
def test_a_pattern_that_cannot_be_read_is_said_so(glob):
    with pytest.raises(ValueError, match="write"):
        pattern_of(glob)


@pytest.mark.parametrize(
    ("glob", "below", "others"),
    [
        ("raw/*/*.x", ["raw", "raw/n1"], ["raw/n1/m", "other", "raw/.n"]),
        ("**/*.x", ["raw", "raw/n1/m"], [".git", "raw/.n"]),
        ("a/**/z/*", ["a", "a/b", "a/b/c/z"], ["b", "ab"]),
        ("d/**", ["d"], ["e"]),
        ("*.x", [], ["raw", "a.x"]),
    ],
)
def test_where_a_glob_could_match_below(glob, below, others):
    assert [name for name in [*below, *others] if may_match_below(glob, name)] == below


def test_a_bracket_without_an_end_says_how_to_write_it():
    with pytest.raises(ValueError, match=re.escape("write '[[]'")):
        pattern_of("a[b")


@given(st.text("ab*?[]!-.\\^", min_size=1, max_size=8))
def test_an_escaped_text_matches_itself_alone(text):
    assert pattern_of(escape_wildcards(text)).fullmatch(text)
    assert not pattern_of(escape_wildcards(text)).fullmatch(text + "a")


@pytest.mark.parametrize(
    ("glob", "directory"), [("*.x", ""), ("a/b/*.x", "a/b"), ("a/*/b/c", "a"), ("a/**", "a"), ("[*]d/*", "*d"), ("a[*]*/x", "")]
)
def test_the_fixed_directory_is_what_needs_listing(glob, directory):
    assert fixed_directory(glob) == directory


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("ab.]/", min_size=1, max_size=5), unique=True, max_size=12), st.text("ab.*?[]/", min_size=1, max_size=6))
@example(["ab", "b"], "[a]b")
@example(["ab", "b"], "a[b]")
def test_the_index_finds_what_looking_at_every_name_finds(names, glob):
    try:
        pattern = pattern_of(glob)
    except ValueError:
        return
    assert NameIndex(names).match(glob) == sorted(name for name in names if pattern.fullmatch(name))


@pytest.mark.slow
@pytest.mark.parametrize("glob", ["{}_*", "*_{}", "a/{}_?"])
def test_many_globs_over_many_names_do_not_look_at_every_name(glob):
    names = [name for i in range(10_000) for name in (f"{i}_x", f"x_{i}", f"a/{i}_y")]
    index, began = NameIndex(names), time.process_time()
    assert all(len(index.match(glob.format(i))) >= 1 for i in range(10_000))
    assert time.process_time() - began < 4
