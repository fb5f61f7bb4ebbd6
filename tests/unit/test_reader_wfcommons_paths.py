"""Recorded names become paths: safe, never two the same, never one a directory of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.readers.paths import clean_path
from stager.readers.wfcommons_paths import safe_paths

TRICKY = st.text(st.sampled_from(["a", "/", ".", "%", "~", "2", "5", "F", " ", ":", "é", "\0", "\n", "\ud800", "s", "t"]), max_size=12)
NAMES = st.lists(TRICKY | st.text(max_size=300), unique=True, max_size=30)


@given(NAMES)
def test_safe_distinct_and_no_file_is_a_directory(names: list[str]) -> None:
    paths = safe_paths(names)
    assert list(paths) == names
    assert len(set(paths.values())) == len(names)
    for path in paths.values():
        assert clean_path(path) == path and path.isascii() and " " not in path
        assert all(0 < len(part) <= 255 for part in path.split("/"))
        above = path.split("/")[:-1]
        assert not {"/".join(above[:depth]) for depth in range(1, len(above) + 1)} & set(paths.values())


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("region-oversized.hdr", "region-oversized.hdr"),
        ("/d0/b0/x.txt", "%/d0/b0/x.txt"),
        ("https://host/x y", "https%3A/%/host/x%20y"),
        ("../../etc/passwd", "%2E%2E/%2E%2E/etc/passwd"),
        (".stager/lock", "%2Estager/lock"),
        ("50%", "50%25"),
    ],
)
def test_readable(name: str, path: str) -> None:
    assert safe_paths([name]) == {name: path}


def test_a_file_that_is_also_a_directory() -> None:
    assert safe_paths(["salmon", "salmon/info.json"]) == {"salmon": "salmon%.file", "salmon/info.json": "salmon/info.json"}


def test_long_names_stay_apart() -> None:
    paths = safe_paths(["x" * 5000 + sign for sign in "ab"] + ["/".join(["deep"] * 2000) + sign for sign in "ab"])
    assert len(set(paths.values())) == 4 and max(map(len, paths.values())) < 1600
