"""Image files: what each is known by, what is refused, and what is unpacked of layers that strangers made (stager/worker/unpack.py)."""

from __future__ import annotations

import ctypes
import gzip
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pytest

from stager.model.errors import InvalidInput, StagerError, Transient
from stager.worker import unpack
from stager.worker.image_file import SIF_HEAD, SIF_HEAD_BYTES, SIF_MAGIC, image_of, own_architecture
from stager.worker.unpack import ROOT, TOLD, sif_variables, unpacked, unsquash
from tests.testbed.images import docker_archive, layer, oci_archive, sif, written
from tests.testbed.tiny_disk import tiny_disk

NOBODY = 65534
TOOLS = {"bin/tool": b"#!/bin/sh\n", "etc/name": b"first"}


def root_of(image: Path, directory: Path) -> Path:
    return Path(unpacked(image, directory)["root_dir"])


def test_a_docker_and_an_oci_archive_of_one_image_are_one_image(tmp_path: Path) -> None:
    images = [make(tmp_path / name, TOOLS, env={"A": "1"}) for make, name in ((docker_archive, "d.tar"), (oci_archive, "o.tar"))]
    first, second = map(image_of, images)
    assert first.identity == second.identity and first.env == second.env == {"A": "1"} and first.architecture == own_architecture()
    assert root_of(images[0], tmp_path / "i") == root_of(images[1], tmp_path / "i")
    assert [each.name for each in (tmp_path / "i").iterdir() if not each.name.startswith(".")] == [first.identity]


def test_layers_lie_over_one_another_and_whiteouts_take_away(tmp_path: Path) -> None:
    lower = {"etc/name": b"first", "etc/gone": b"x", "opt/old/a": b"a", "opt/old/b": b"b", "lib": "usr/lib", "usr/lib/one": b"1"}
    upper = {"etc/name": b"second", "etc/.wh.gone": b"", "opt/old/c": b"c", "opt/old/.wh..wh..opq": b"", "lib/two": b"2"}
    root = root_of(docker_archive(tmp_path / "i.tar", lower, upper), tmp_path / "i")
    assert (root / "etc/name").read_bytes() == b"second" and not (root / "etc/gone").exists()
    assert os.listdir(root / "opt/old") == ["c"], "what its own layer brings stays"
    assert sorted(os.listdir(root / "usr/lib")) == ["one", "two"], "through a link inside the image"
    assert stat.S_IMODE((root / "usr").stat().st_mode) == 0o755, "what no layer names is made so that others do not write there"
    assert all((root / name).is_dir() for name in ("proc", "dev", "tmp", "var/tmp", "sandbox")) and (root / "etc/hosts").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user here")
def test_an_ordinary_user_unpacks_in_a_namespace_of_his_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "OWNS_ALL", False)
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        owned = tarfile.TarInfo("etc/of-another")
        owned.uid = owned.gid = 12
        image = docker_archive(place / "i.tar", TOOLS, {"etc/of-another": owned})
        os.chown(place, NOBODY, NOBODY)
        child = os.fork()
        if child == 0:
            os._exit(0 if unpacks_as_nobody(image, place / "i") else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        [found] = (place / "i").glob("sha256-*/root/etc/of-another")
        assert found.stat().st_uid == NOBODY
    finally:
        shutil.rmtree(place)


def unpacks_as_nobody(image: Path, directory: Path) -> bool:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # Who was root before would be refused its own files in /proc: PR_SET_DUMPABLE.
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    try:
        return (root_of(image, directory) / "etc/name").read_bytes() == b"first"
    except (OSError, StagerError):
        traceback.print_exc()
        return False


def device(path: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.devmajor, entry.devminor = tarfile.CHRTYPE, 1, 3
    return entry


def hard_link(path: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.linkname = tarfile.LNKTYPE, target
    return entry


def test_no_layer_writes_beside_its_image(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    attacks: dict[str, Any] = {
        "../../../outside/up": b"x",
        f"{outside}/absolute": b"x",
        "way": str(outside),
        "way/through": b"x",
        "etc/resolv.conf": str(outside / "kept"),
        "tmp": str(outside),
        "null": device("null"),
        "suid": b"x",
    }
    root = root_of(docker_archive(tmp_path / "i.tar", attacks), tmp_path / "i")
    assert os.listdir(outside) == ["kept"] and (outside / "kept").read_text() == "kept"
    assert not (root / "null").exists(), "no device"
    assert not (root / "etc/resolv.conf").is_symlink() and not (root / "tmp").is_symlink(), "nothing is mounted through a link"
    with pytest.raises(StagerError):
        unpacked(docker_archive(tmp_path / "h.tar", {"way": str(outside), "hard": hard_link("hard", "way/kept")}), tmp_path / "i")


def test_what_is_no_image_for_this_host_is_refused_by_name(tmp_path: Path) -> None:
    def refusal(path: Path) -> str:
        with pytest.raises(InvalidInput) as caught:
            unpacked(path, tmp_path / "i")
        return caught.value.message

    good = docker_archive(tmp_path / "good.tar", TOOLS)
    (tmp_path / "text").write_text("no image\n" * 100)
    (tmp_path / "packed").write_bytes(gzip.compress(good.read_bytes()))
    assert "neither a Docker archive, an OCI archive or a SIF file" in refusal(tmp_path / "text")
    assert "it is compressed as a whole" in refusal(tmp_path / "packed")
    other = "arm64" if own_architecture() != "arm64" else "amd64"
    assert f"the image is for {other}, and this host is {own_architecture()}" in refusal(
        docker_archive(tmp_path / "o", TOOLS, architecture=other)
    )
    assert "neither manifest.json nor index.json" in refusal(written(tmp_path / "other.tar", {"a": b""}))
    damaged = good.read_bytes().replace(b"first", b"FIRST")
    (tmp_path / "damaged.tar").write_bytes(damaged)
    assert "has another content than its configuration says" in refusal(tmp_path / "damaged.tar")
    (tmp_path / "short.tar").write_bytes(good.read_bytes()[:2000])
    refusal(tmp_path / "short.tar")
    assert [each for each in (tmp_path / "i").iterdir() if not each.name.endswith(".lock")] == [], "nothing is left of them"


def relinked(path: Path, link: str) -> None:
    """Its layer is a symlink now."""
    members = {}
    with tarfile.open(path) as archive:
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None
            members[entry.name] = stream.read()
    name = next(name for name in members if name.endswith(".tar"))
    del members[name]
    written(path, members)
    if link:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, link
        with tarfile.open(path, "a") as archive:
            archive.addfile(entry)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("link", ["", "itself", "elsewhere.tar"])
def test_an_archive_that_lacks_a_layer_is_no_image(tmp_path: Path, link: str) -> None:
    path = docker_archive(tmp_path / "i.tar", TOOLS)
    name = image_of(path).layers[0].member
    relinked(path, name if link == "itself" else link)
    with pytest.raises(InvalidInput, match="damaged: it lacks|leads to itself"):
        unpacked(path, tmp_path / "i")


def test_a_layer_whose_checksum_is_wrong_is_damaged(tmp_path: Path) -> None:
    """Not the disk, which another try could find mended."""
    path = oci_archive(tmp_path / "o.tar", {"data": os.urandom(1000)})
    said = path.read_bytes()
    start = said.index(b"\x1f\x8b\x08")
    # Of what is packed the last eight bytes are its checksum and its size.
    with tarfile.open(path) as archive:
        [entry] = [each for each in archive if each.name.startswith("blobs/") and each.offset_data == start]
    at = start + entry.size - 8
    path.write_bytes(said[:at] + bytes(4) + said[at + 4 :])
    with pytest.raises(InvalidInput, match="is damaged"):
        unpacked(path, tmp_path / "i")


def test_documents_that_nest_without_end_are_no_image(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="this is no image"):
        image_of(written(tmp_path / "i.tar", {"manifest.json": b"[" * 100_000}))


@pytest.mark.parametrize("start", [-1, 4096, (1 << 63) - 1])
def test_a_sif_file_whose_header_leads_nowhere_is_damaged(tmp_path: Path, start: int) -> None:
    head = struct.pack(SIF_HEAD, b"#!/usr/bin/env run-singularity\n", SIF_MAGIC, b"01", b"02", bytes(16), 0, 0, 1, 1, start, 585, 0, 0)
    (tmp_path / "i.sif").write_bytes(head)
    with pytest.raises(InvalidInput, match="is damaged: where it says"):
        image_of(tmp_path / "i.sif")


def test_that_unsquashfs_was_ended_says_nothing_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory runs out the kernel ends it."""
    program = tmp_path / "bin" / "unsquashfs"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(Transient, match="was ended by signal 9"):
        unsquash(tmp_path / "i.sif", 0, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_an_owner_that_no_host_can_have_is_damage(tmp_path: Path) -> None:
    owned = tarfile.TarInfo("of-nobody")
    owned.uid = 1 << 40
    with pytest.raises(InvalidInput, match="is damaged"):
        unpacked(docker_archive(tmp_path / "i.tar", {"of-nobody": owned}), tmp_path / "i")


def test_one_that_lost_its_note_is_unpacked_again(tmp_path: Path) -> None:
    image = docker_archive(tmp_path / "i.tar", TOOLS)
    root = root_of(image, tmp_path / "i")
    (root.parent / TOLD).unlink()
    (root / "etc/name").unlink()
    assert (root_of(image, tmp_path / "i") / "etc/name").read_bytes() == b"first"


def test_programs_of_other_users_find_the_root_directory_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        root = root_of(docker_archive(tmp_path / "i.tar", TOOLS), tmp_path / "i")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (root, root / "etc")] == [0o755] * 2


def test_a_member_may_not_be_what_its_digest_is_not(tmp_path: Path) -> None:
    path = oci_archive(tmp_path / "o.tar", TOOLS, env={"A": "1"})
    path.write_bytes(path.read_bytes().replace(b'"A=1"', b'"A=2"'))
    with pytest.raises(InvalidInput, match="another content than its name says"):
        image_of(path)


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools are not installed")
def test_a_sif_file_is_unpacked_with_the_variables_that_its_scripts_set(tmp_path: Path) -> None:
    scripts = b'#!/bin/sh\nexport PATH="/opt/bin:/bin"\nexport LANG="${LANG:-"C.UTF-8"}"\nexport OTHER="$PATH:/x"\n'
    path = sif(tmp_path / "i.sif", TOOLS | {".singularity.d/env/10-docker2singularity.sh": scripts})
    told = unpacked(path, tmp_path / "i")
    assert (Path(told["root_dir"]) / "etc/name").read_bytes() == b"first" and (Path(told["root_dir"]) / "sandbox").is_dir()
    assert told["env"] == {"PATH": "/opt/bin:/bin", "LANG": "C.UTF-8"}
    other = "arm64" if own_architecture() != "arm64" else "amd64"
    with pytest.raises(InvalidInput, match=f"is for {other}"):
        unpacked(sif(tmp_path / "o.sif", TOOLS, other), tmp_path / "i")


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools are not installed")
def test_a_damaged_copy_of_a_sif_file_is_not_taken_for_the_whole_one(tmp_path: Path) -> None:
    """What is behind its header is in no digest of its own."""
    content = os.urandom(100_000)
    whole = sif(tmp_path / "i.sif", TOOLS | {"data": content})
    said = whole.read_bytes()
    at = said.index(content[50_000:60_000])
    assert at > SIF_HEAD_BYTES
    damaged = tmp_path / "damaged.sif"
    damaged.write_bytes(said[:at] + bytes(10_000) + said[at + 10_000 :])
    assert (root_of(damaged, tmp_path / "i") / "data").read_bytes() != content
    assert (root_of(whole, tmp_path / "i") / "data").read_bytes() == content


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools are not installed")
def test_a_sif_file_that_finds_no_space_is_tried_again(tmp_path: Path) -> None:
    image = sif(tmp_path / "i.sif", TOOLS | {"data": os.urandom(12 << 20)})
    with tiny_disk(tmp_path / "disk") as disk:
        with pytest.raises(Transient, match="no space is left for it"):
            unpacked(image, disk / "i")
        assert [each.name for each in (disk / "i").iterdir() if not each.name.endswith(".lock")] == []


def test_scripts_of_a_sif_file_are_not_looked_for_through_links(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/a.sh").write_text("export A=1\n")
    root = tmp_path / ROOT
    (root / ".singularity.d").mkdir(parents=True)
    (root / ".singularity.d/env").symlink_to(tmp_path / "env")
    assert sif_variables(root) == {}


def test_a_layer_is_as_it_was_made() -> None:
    """So that two archives of it have one digest."""
    assert layer(TOOLS) == layer(TOOLS)
