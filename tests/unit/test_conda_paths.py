"""What conda packages say of their files: believed only where it is in them, and stays within the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.errors import InvalidInput, Refused
from stager.worker.conda_paths import Inside, check, destination, inside_of, site_packages

ABOUT = b'{"name": "%s", "version": "1", "build": "0"}'
ROOT = "/state/environments/0123"


def package(
    name: str,
    files: list[str],
    *,
    links: tuple[str, ...] = (),
    told: list[Any] | None = None,
    index: Mapping[str, Any] | None = None,
    entry_points: list[str] | None = None,
) -> Inside:
    """Of which `told` is said to be in it, where that is not all."""
    paths = (
        [{"_path": path, "path_type": "softlink" if path in links else "hardlink"} for path in [*files, *links]] if told is None else told
    )
    about = {"name": name, "version": "1", "build": "0"} | dict(index or {})
    texts = {
        "info/index.json": json.dumps(about).encode(),
        "info/paths.json": json.dumps({"paths": paths}).encode(),
        **({"info/link.json": json.dumps({"noarch": {"entry_points": entry_points}}).encode()} if entry_points is not None else {}),
    }
    entries = [(path, False) for path in [*texts, *files]] + [(path, True) for path in links]
    return inside_of(f"{name}-{about['version']}-0.conda", entries, texts)


PYTHON = package("python", ["bin/python3.12"], index={"version": "3.12.3"})


def test_what_packages_put_side_by_side_is_taken() -> None:
    tool = package("tool", ["bin/tool", "lib/libtool.so.1", "share/tool/data"], links=("lib/libtool.so",))
    module = package("module", ["site-packages/m.py", "python-scripts/m"], index={"noarch": "python"}, entry_points=["run = m:main"])
    empty = package("empty", [], told=[{"_path": "share/tool", "path_type": "directory"}])
    check([tool, PYTHON, module, empty], ROOT)
    assert destination(module, "site-packages/m.py", site_packages([PYTHON])) == "lib/python3.12/site-packages/m.py"
    assert destination(module, "python-scripts/m", "x") == "bin/m" and destination(tool, "site-packages/m.py", "x") == "site-packages/m.py"
    free = package("python", [], index={"version": "3.13.1", "python_site_packages_path": "lib/python3.13t/site-packages"})
    assert site_packages([free]) == "lib/python3.13t/site-packages"
    old = inside_of(
        "old-1-0.tar.bz2", [("info/files", False), ("bin/old", False)], {"info/files": b"bin/old\n", "info/index.json": ABOUT % b"old"}
    )
    check([old], ROOT)
    assert [each.path for each in old.declared] == ["bin/old"]


A = ["a"]


@pytest.mark.parametrize(
    ("packages", "told"),
    [
        ([package("x", A, told=[{"_path": "../a"}])], "it has a file '../a'"),
        ([package("x", A, told=[{"_path": "/a"}])], "it has a file '/a'"),
        ([package("x", A, told=[{"_path": "b/../a"}])], "it has a file 'b/../a'"),
        ([package("x", A, told=[{"path": "a"}])], "it declares 'None', which is not in it"),
        ([package("x", A, told=[{"_path": "b"}])], "it declares 'b', which is not in it"),
        ([package("x", A, told=[{"_path": "a", "path_type": "softlink"}])], "it declares 'a' as a link, and it is none"),
        ([package("x", A, told=["a"])], "its info/paths.json cannot be read"),
        ([package("x", A, told=[{"_path": "a"}, {"_path": "a"}])], "it declares 'a' twice"),
        ([package("x", ["environment.json"])], "it has a file 'environment.json'"),
        ([package("x", [".stager-packages/a"])], "it has a file '.stager-packages/a'"),
        ([package("x", [], links=("d",), told=[{"_path": "d/secret"}])], "it declares 'd/secret', which is not in it"),
        ([package("x", [], links=("d",)), package("y", ["d/b"])], "it puts 'd/b' below 'd', which is a file of x-1-0.conda"),
        (
            [package("x", [], links=("d",), told=[{"_path": "d", "path_type": "directory"}]), package("y", ["d/b"])],
            "it puts 'd/b' below 'd', which is a file of x-1-0.conda",
        ),
        ([package("x", [], links=("conda-meta/y-1-0.json",))], "it has a link 'conda-meta/y-1-0.json'"),
        (
            [package("x", [], links=("bin/run",)), PYTHON, package("m", [], index={"noarch": "python"}, entry_points=["run = m:main"])],
            "'bin/run'",
        ),
        ([PYTHON, package("m", [], index={"noarch": "python"}, entry_points=["../../run = m:main"])], "its program 'bin/../../run'"),
        (
            [package("x", ["lib/python3.12/site-packages/d"]), PYTHON, package("m", ["site-packages/d/e"], index={"noarch": "python"})],
            "'lib/pyth",
        ),
        (
            [
                package("python", [], index={"version": "3.12", "python_site_packages_path": "../out"}),
                package("m", [], index={"noarch": "python"}),
            ],
            "its modules would be put into '../out'",
        ),
        (
            [
                PYTHON,
                package("l", [], links=("site-packages",), index={"noarch": "python"}),
                package("m", ["site-packages/m.py"], index={"noarch": "python"}),
            ],
            "it puts 'lib/python3.12/site-packages/m.py' below 'lib/python3.12/site-packages', which is a file of l-1-0.conda",
        ),
        ([package("python", [], index={"version": "3_12"}), package("m", A, index={"noarch": "python"})], "its version is '3_12'"),
        ([inside_of("x-1-0.conda", [], {"info/index.json": ABOUT % b"python"})], "it says that it is python-1-0"),
    ],
)
def test_a_package_that_says_what_is_not_so_is_not_installed(packages: list[Inside], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(packages, ROOT)
    assert told in caught.value.message and caught.value.code == "package_unsafe"


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([("../a", False)], "it has a file '../a'"),
        ([("d", True), ("d/b", False)], "it has 'd/b', which leads through a link of its own"),
        ([("info", True), ("info/paths.json", False)], "leads through a link"),
        ([("info/paths.json", False), ("./info//paths.json", False)], "it has 'info/paths.json' twice"),
        ([("a", False), ("a", True)], "it has 'a' twice"),
    ],
)
def test_an_archive_that_is_not_what_it_seems_is_not_unpacked(entries: list[tuple[str, bool]], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        inside_of("x-1-0.conda", entries, {})
    assert told in caught.value.message


def test_a_path_that_is_too_long_is_told_to_who_can_shorten_it() -> None:
    told = [{"_path": "a", "file_mode": "binary", "prefix_placeholder": "/" + "p" * 19}]
    check([package("x", A, told=told)], "/" + "r" * 19)
    with pytest.raises(Refused, match="x-1-0.conda allows 20 bytes for the path of its environment"):
        check([package("x", A, told=told)], "/" + "r" * 20)


def test_modules_need_a_python() -> None:
    with pytest.raises(InvalidInput, match=r"m-1-0.conda needs python, which its lock file does not name"):
        check([package("m", ["site-packages/m.py"], index={"noarch": "python"})], ROOT)


def test_what_would_be_run_is_known() -> None:
    assert package("x", ["bin/.x-post-link.sh", "bin/x", "bin/.x-pre-unlink.sh"]).scripts == ["bin/.x-post-link.sh"]


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "", "bin", "environment.json", "conda-meta"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=6), st.lists(NAMES, max_size=4), st.lists(NAMES, max_size=3))
def test_whatever_is_declared_is_below_the_environment_and_below_no_link(
    entries: list[tuple[str, bool]], told: list[str], more: list[str]
) -> None:
    texts = {"info/index.json": ABOUT % b"x", "info/paths.json": json.dumps({"paths": [{"_path": path} for path in told]}).encode()}
    try:
        found = inside_of("x-1-0.conda", entries, texts)
        other = package("y", more)
        check([found, other], ROOT)
    except InvalidInput:
        return
    links = {each.path for each in found.declared if each.path in found.links}
    for path in [*told, *more]:
        assert not path.startswith("/") and ".." not in path.split("/") and path != "environment.json"
        assert not any(path.startswith(f"{link}/") for link in links)
