"""Images of registries: a tag is asked for once, what it means is pulled once, and what goes wrong is told by who must act."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.worker.image_file import own_architecture
from tests.testbed.images import PROGRAMS, docker_archive, programs
from tests.testbed.registry import ASKS_FOR_LOGIN, Registry
from tests.testbed.stager import Stager

pytestmark = pytest.mark.xdist_group("containers")
TEXT = """stager: 1
name: tools
on_exists: replace
defaults: {retries: 0, container: "%s"}
jobs: {a: {run: "cat /etc/version > a.txt", shell: sh, outputs: {a.txt: "here:out/"}}}
"""


PEGASUS = """pegasus: "5.0"
name: boxed
transformationCatalog:
  transformations:
  - {name: copy, sites: [{name: incontainer, pfn: /bin/cat, type: installed, container: tools}]}
  containers:
  - {name: tools, type: singularity, image: "%s"}
jobs:
- {type: job, name: copy, id: one, arguments: [/etc/version], stdout: made.txt, uses: [{lfn: made.txt, type: output}]}
"""


class Bed:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.registry = Registry(place / "registry")
        self.stager = Stager(place / "s", place / "home")
        self.registry.allow_plain(self.stager.home)
        self.registry.start()

    def push(self, tag: str, version: bytes, architecture: str = "") -> None:
        files = programs(*PROGRAMS)
        self.registry.push(docker_archive(self.place / "i.tar", files, {"etc/version": version}, architecture=architecture), tag)

    def run(self, command: str, image: str, *words: str, code: int | None = 0) -> str:
        (self.place / "w.yml").write_text(TEXT % image)
        done = self.stager.run(command, "w.yml", *words, cwd=self.place, code=code)
        return done.stdout + done.stderr

    @property
    def pulled(self) -> list[str]:
        place = self.stager.state_dir / "images" / "pulled"
        return sorted(os.listdir(place)) if place.is_dir() else []


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Bed]:
    made = Bed(short_dir)
    yield made
    made.stager.end()
    made.registry.stop()


def test_a_tag_is_pulled_once_and_followed(bed: Bed) -> None:
    bed.push("tools:1", b"one\n")
    image = bed.registry.name("tools:1")
    told = bed.run("plan", image)
    assert "`submit` pulls it once" in told and "over the WAN" in told and bed.pulled == [], "a plan pulls nothing"
    assert "pulling docker://" in bed.run("submit", image, "--reuse")
    assert (bed.place / "out/a.txt").read_text() == "one\n" and len(bed.pulled) == 1
    told = bed.run("submit", image, "--reuse")
    assert "pulling" not in told and "1 of 1 job reused" in told
    bed.push("tools:1", b"two\n")
    assert "0 of 1 job reused" in bed.run("submit", image, "--reuse")
    assert (bed.place / "out/a.txt").read_text() == "two\n" and len(bed.pulled) == 2
    (bed.place / "p.yml").write_text(PEGASUS % image)
    bed.stager.run("submit", "p.yml", "--output-origin", str(bed.place / "out"), cwd=bed.place)
    assert (bed.place / "out/made.txt").read_text() == "two\n" and len(bed.pulled) == 2
    bed.stager.run("gc", "--cache")
    assert len(bed.pulled) == 2, "asked for lately"
    for path in (bed.stager.state_dir / "images").rglob("*sha256-*.tar"):
        os.utime(path, (0, 0))
    assert "images: " in bed.stager.run("gc", "--cache").stdout and bed.pulled == []
    assert "pulling docker://" in bed.run("submit", image, "--no-reuse") and len(bed.pulled) == 1


def test_a_tag_with_a_digest_is_the_image_of_the_digest(bed: Bed) -> None:
    """As bots write it that keep workflows up to date."""
    bed.push("tools:1", b"one\n")
    image = bed.registry.name("tools:1")
    bed.run("submit", image)
    digest = bed.pulled[0].removesuffix(f"-{own_architecture()}.tar").replace("-", ":")
    bed.push("tools:1", b"two\n")
    bed.run("submit", f"{image}@{digest}", "--no-reuse")
    assert (bed.place / "out/a.txt").read_text() == "one\n" and len(bed.pulled) == 1


def test_what_cannot_be_pulled_is_told_by_who_must_act(bed: Bed, tmp_path: Path) -> None:
    other = "arm64" if own_architecture() != "arm64" else "amd64"
    bed.push("tools:1", b"one\n")
    bed.push("other:1", b"one\n", other)
    assert "the registry has no docker://" in bed.run("submit", bed.registry.name("tools:2"), code=2)
    assert "the registry has no docker://" in bed.run("submit", bed.registry.name("nosuch:1"), code=2)
    assert f"is for {other}, and this host is {own_architecture()}" in bed.run("submit", bed.registry.name("other:1"), code=2)
    assert "is no image of a registry" in bed.run("validate", "docker://127.0.0.1/UP AND AWAY", code=2)
    locked = Registry(tmp_path / "locked", ASKS_FOR_LOGIN)
    locked.allow_plain(bed.stager.home)
    locked.start()
    try:
        assert "log in (skopeo login 127.0.0.1:" in bed.run("submit", locked.name("tools:1"), code=None)
    finally:
        locked.stop()
    bed.registry.stop()
    assert "cannot be asked" in bed.run("submit", bed.registry.name("tools:1"), code=None)
    bed.stager.env = dict(bed.stager.env) | {"PATH": str(tmp_path)}
    assert "skopeo, which this host lacks" in bed.run("submit", bed.registry.name("tools:1"), code=3)
    assert bed.pulled == []
