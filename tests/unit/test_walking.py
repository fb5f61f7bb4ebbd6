"""What a job left is gone through as `os.walk` would, without its end at a thousand levels (stager/worker/walking.py)."""

from __future__ import annotations

import os
from pathlib import Path

from stager.worker import AttemptInput, AttemptSpec, Place
from stager.worker.fullness import written_bytes
from stager.worker.kept_directory import tree_bytes
from stager.worker.walking import walked
from tests.testbed.deep import LEVELS, chain, gone_after


def test_it_is_the_order_of_who_asks_and_no_link_is_followed(tmp_path: Path) -> None:
    for name in ("b/one", "a/c/two", "a/left-out/three"):
        path = tmp_path / "top" / name
        path.parent.mkdir(parents=True)
        path.touch()
    (tmp_path / "top" / "a" / "link").symlink_to(tmp_path)
    found = []
    for here, directories, others in walked(tmp_path / "top"):
        found.append((os.path.relpath(here, tmp_path), sorted(others)))
        directories[:] = sorted(name for name in directories if name != "left-out")
    assert found == [("top", []), ("top/a", ["link"]), ("top/a/c", ["two"]), ("top/b", ["one"])]
    assert list(walked(tmp_path / "missing")) == []


def test_what_was_written_is_counted_beside_the_deepest_directories(tmp_path: Path) -> None:
    place = Place.of(tmp_path, "a1")
    with gone_after(tmp_path / "attempts"):
        chain(Path(place.sandbox), LEVELS)
        for name in ("given", "made"):
            Path(place.sandbox, name).write_bytes(b"x" * 4096)
        spec = AttemptSpec(attempt_id="a1", run_id="r", job_id="j", argv=("x",), inputs=(AttemptInput("f", "g", "given"),))
        assert written_bytes(spec, place) == 4096 and tree_bytes(Path(place.sandbox)) == 8192
