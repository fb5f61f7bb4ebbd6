"""stager-transfer against the pegasus-transfer of Pegasus 5.1.3 on made-up lists: the same files, the same exit code.

One rule: a call is slow for its sleeps only, so calls go on side by side and each has many entries. STAGER_PEGASUS_SEEDS asks for more.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import pegasus_lists as made_up
from tests.testbed.pegasus import Done, listed, ours, pegasus_transfer, snapshot, theirs, transfer, url
from tests.testbed.pegasus_lists import Case
from tests.testbed.pegasus_odd import ODD, odd

SEEDS = range(int(os.environ.get("STAGER_PEGASUS_SEEDS", "6")))
ONCE = ("-m", "1", "-n", "1")
# Fills a directory; says the list and the options.
Maker = Callable[[Path], tuple[str | bytes, list[str]]]
# Calls of pegasus-transfer sleep, and are many: a busy machine takes minutes for one test.
pytestmark = [pytest.mark.xdist_group("pegasus"), pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def real() -> None:
    pegasus_transfer()


def both(place: Path, make: Maker) -> tuple[Done, Done]:
    """Each program in a directory made alike. Asserts that they agree."""
    results = {}
    for name, program in (("theirs", theirs), ("ours", ours)):
        root = place / name / "root"
        root.mkdir(parents=True)
        given, options = make(root)
        done = program(given, root, *ONCE, *options, ROOT=str(root))
        results[name] = (done, snapshot(root))
    (their_done, their_files), (our_done, our_files) = results["theirs"], results["ours"]
    found = differences(their_files, our_files)
    if our_done.code != their_done.code:
        found.append(f"exit code: theirs {their_done.code}, ours {our_done.code}")
    assert not found, "\n".join([*found, "ours said:", our_done.said, "theirs said:", their_done.said])
    return their_done, our_done


def differences(their_files: dict[str, Any], our_files: dict[str, Any]) -> list[str]:
    names = sorted(name for name in their_files | our_files if their_files.get(name) != our_files.get(name))
    return [f"{name}: theirs {their_files.get(name)}, ours {our_files.get(name)}" for name in names]


def side_by_side(place: Path, makers: dict[str, Maker]) -> dict[str, tuple[Done, Done]]:
    with ThreadPoolExecutor(8) as pool:
        running = {name: pool.submit(both, place / name, make) for name, make in makers.items()}
        return {name: one.result() for name, one in running.items()}


def maker(case_of: Callable[[Path], Case]) -> Maker:
    def make(root: Path) -> tuple[str, list[str]]:
        case = case_of(root)
        return listed(*case.entries), case.options

    return make


def test_transfers(tmp_path: Path) -> None:
    makers = {f"s{seed}": maker(lambda root, seed=seed: made_up.transfers(seed, root)) for seed in SEEDS}
    done = side_by_side(tmp_path, makers)
    assert {real.code for real, _ in done.values()} == {0, 1}, "the lists are one-sided"


def test_removals(tmp_path: Path) -> None:
    makers = {f"s{seed}": maker(lambda root, seed=seed: made_up.removals(seed, root)) for seed in SEEDS}
    done = side_by_side(tmp_path, makers)
    assert {real.code for real, _ in done.values()} == {0, 1}, "the lists are one-sided"


def test_directories(tmp_path: Path) -> None:
    makers = {f"m{number}": maker(lambda root, number=number: made_up.mkdirs(0, root)[number]) for number in range(7)}
    done = side_by_side(tmp_path, makers)
    assert {real.code for real, _ in done.values()} == {0, 1}


def test_the_older_text_form(tmp_path: Path) -> None:
    def make(root: Path) -> tuple[str, list[str]]:
        case = made_up.transfers(3, root, count=15)
        return made_up.as_text(case.entries), case.options

    both(tmp_path, make)


ODD_TEXTS = {
    "no second comments": "# src 1 a\nfile:///etc/hostname\nfile://{root}/x\n",
    "sites are kept": "# src 1 a\nfile:///etc/hostname\n# dst 1 b\nfile://{root}/x\nfile:///etc/hostname\nfile://{root}/y\n",
    "short lines": "# src 1 a\n\nxy\nfile:///etc/hostname\n# b\n# dst 1 b\n\nfile://{root}/x\n",
    "no site": "# src 1\nfile:///etc/hostname\n# dst 1 b\nfile://{root}/x\n",
    "no site of the destination": "# src 1 a\nfile:///etc/hostname\n# dst 1\nfile://{root}/x\n",
    "a comment for a URL": "# src 1 a\n# not a url\n# dst 1 b\nfile://{root}/x\n",
}


def test_odd_text(tmp_path: Path) -> None:
    makers = {
        f"o{number}": (lambda root, text=text: (text.replace("{root}", str(root)), [])) for number, text in enumerate(ODD_TEXTS.values())
    }
    assert {real.code for real, _ in side_by_side(tmp_path, makers).values()} == {0, 1}


GOOD = transfer([url("/etc/hostname")], url("file://$ROOT/x"))
BAD: dict[str, tuple[str | bytes, list[str]]] = {
    "nothing": ("", []),
    "no JSON": ("[{", []),
    "null": ("null", []),
    "a number": ("7", []),
    "an empty list": ("[]", []),
    "a list of text": (listed("x"), []),  # type: ignore[arg-type]
    "no type": (listed({k: v for k, v in GOOD.items() if k != "type"}), []),
    "another type": (listed(GOOD | {"type": "dance"}), []),
    "no sources": (listed(GOOD | {"src_urls": []}), []),
    "no source key": (listed({k: v for k, v in GOOD.items() if k != "src_urls"}), []),
    "no destinations": (listed(GOOD | {"dest_urls": []}), []),
    "no site": (listed(GOOD | {"src_urls": [{"url": "file:///etc/hostname"}]}), []),
    "no URL": (listed(GOOD | {"src_urls": [{"site_label": "x"}]}), []),
    "site is a number": (listed(GOOD | {"src_urls": [{"site_label": 7, "url": "/etc/hostname"}]}), []),
    "priority is a word": (listed(GOOD | {"src_urls": [url("/etc/hostname", priority="high")]}), []),
    "priority is a number as text": (listed(GOOD | {"src_urls": [url("/etc/hostname", priority="7")]}), []),
    "no URL at all": (listed(transfer([url("a:b")], url("file://$ROOT/x"))), []),
    "unknown protocol": (listed(GOOD, transfer([url("warp://h/x")], url("file://$ROOT/y"))), []),
    "an unknown destination": (listed(GOOD, transfer([url("/etc/hostname")], url("warp://h/x"))), []),
    "mkdir without target": (listed({"type": "mkdir"}), []),
    "mkdir of an unknown protocol": (listed({"type": "mkdir", "target": url("warp://h/x")}), []),
    "remove without target": (listed({"type": "remove"}), []),
    "remove of an unknown protocol": (listed({"type": "remove", "target": url("warp://h/x")}), []),
    "mixed kinds": (listed(GOOD, {"type": "mkdir", "target": url("file://$ROOT/d")}), []),
    "no such option": (listed(GOOD), ["--dance"]),
    "attempts in words": (listed(GOOD), ["-m", "three"]),
    "no such file": ("", ["-f", "/no/such/list"]),
    "help": ("", ["--help"]),
}


def test_bad_lists_and_odd_options(tmp_path: Path) -> None:
    makers = {f"b{number}": (lambda root, given=given: given) for number, given in enumerate(BAD.values())}
    done = side_by_side(tmp_path, makers)
    codes = {name: real.code for name, (real, _) in zip(BAD, done.values(), strict=True)}
    assert set(codes.values()) == {0, 1, 2}, codes
    for name, (_, own) in zip(BAD, done.values(), strict=True):
        assert "Traceback" not in own.said, f"{name}: {own.said}"
        assert own.code != 1 or "nothing was done" in own.said, f"{name}: {own.said}"


def test_odd_lists(tmp_path: Path) -> None:
    done = side_by_side(tmp_path, {f"c{number}": odd(name) for number, name in enumerate(ODD)})
    assert {real.code for real, _ in done.values()} == {0, 1}
    for name, (_, own) in zip(ODD, done.values(), strict=True):
        assert "Traceback" not in own.said, f"{name}: {own.said}"


def statistics(place: Path) -> list[dict[str, Any]]:
    """Of the one file in the directory, without what differs from run to run."""
    (file,) = (place / "multipart").iterdir()
    assert file.name.endswith("-transfer") and file.name.split("-")[0].isdigit()
    (block,) = yaml.safe_load(file.read_text())
    attempts = block["transfer_attempts"] or []
    for attempt in attempts:
        assert isinstance(attempt.pop("start"), int) and isinstance(attempt.pop("duration"), float)
        for key in ("src_url", "dst_url"):
            attempt[key] = attempt[key].replace(str(place), "PLACE")
    return sorted(attempts, key=str)


def test_statistics_and_checksums(tmp_path: Path) -> None:
    """What kickstart and monitord read: each attempt, and the checksum of each file asked for."""
    found = {}
    for name, program in (("theirs", theirs), ("ours", ours)):
        place = tmp_path / name
        (place / "multipart").mkdir(parents=True)
        (place / "root").mkdir()
        (place / "root" / "a b").write_bytes(b"1234567")
        (place / "root" / "empty").write_bytes(b"")
        entries = [
            transfer(
                [url("/no/such", "s-1", priority=9), url(place / "root" / "a b", priority=1)],
                url(place / "root/d/a"),
                lfn="a b",
                generate_checksum=True,
            ),
            transfer([url(place / "root" / "empty")], url(place / "root/d/e"), lfn="e", generate_checksum=True),
            transfer([url(place / "root" / "empty")], url(f"symlink://{place}/root/d/s")),
            transfer([url("/no/such")], url(place / "root/d/n"), lfn="n", generate_checksum=True),
            transfer([url(place / "root" / "a b")], url(place / "root/d/without"), generate_checksum=True),
        ]
        program(
            listed(*entries),
            place / "root",
            *ONCE,
            PEGASUS_MULTIPART_DIR=f"{place}/multipart",
            KICKSTART_INTEGRITY_DATA=f"{place}/integrity",
        )
        blocks = yaml.safe_load((place / "integrity").read_text())
        for block in blocks.values():
            assert block.pop("inode") > 0 and block.pop("checksum_timing") >= 0
            assert block.pop("mtime") and block.pop("atime") and block.pop("ctime")
            block["file_name"] = block["file_name"].replace(str(place), "PLACE")
        found[name] = (statistics(place), blocks)
    assert found["ours"] == found["theirs"]
    assert len(found["ours"][0]) == 6 and set(found["ours"][1]) == {"a b", "e"}


def meta(lfn: str, sha256: str) -> dict[str, Any]:
    return {"_id": lfn, "_type": "file", "_attributes": {"checksum.type": "sha256", "checksum.value": sha256}}


@pytest.mark.parametrize("right", [True, False])
def test_the_check_at_the_destination(tmp_path: Path, right: bool) -> None:
    """verify_checksum_remote with the checksum of a *.meta file. Of what is refused stager-transfer leaves no copy: files differ."""
    codes = {}
    for name, program in (("theirs", theirs), ("ours", ours)):
        root = tmp_path / name
        root.mkdir()
        (root / "a").write_bytes(b"abc")
        sha256 = hashlib.sha256(b"abc" if right else b"xyz").hexdigest()
        (root / "job.meta").write_text(json.dumps([meta("other", "0"), meta("a", sha256)]))
        entry = transfer([url(root / "a")], url(root / "d/a"), lfn="a", linkage="output", verify_checksum_remote=True)
        done = program(listed(entry), root, *ONCE)
        codes[name] = done.code
        assert '"succeeded": 1' in done.said if right else '"failed": 1' in done.said
    assert codes == {"theirs": 0 if right else 1, "ours": 0 if right else 1}
    assert (tmp_path / "ours/d/a").exists() == right
