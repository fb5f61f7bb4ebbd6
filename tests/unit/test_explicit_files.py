"""Lock files of conda packages: what is understood of one, and what is said of each that is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.errors import InvalidInput
from stager.worker.explicit_file import SUBDIRS, Wanted, packages_in

MD5, SHA = "0" * 31 + "a", "b" * 64
FORGE = "https://conda.anaconda.org/conda-forge"
# As conda, conda-lock, micromamba and pixi print theirs.
LOCK = f"""# This file may be used to create an environment using:
# $ conda create --name <env> --file <this file>
# platform: linux-64
# created-by: conda 26.1.0
@EXPLICIT

{FORGE}/linux-64/_libgcc_mutex-0.1-conda_forge.tar.bz2#{MD5}
{FORGE}/noarch/tzdata-2024a-h0c530f3_0.conda#{SHA}
  {FORGE}/linux-64/python-3.12.3-hab00c5b_0_cpython.conda#sha256:{SHA}
{FORGE}/noarch/r-base64enc-0.1_3-r43_1.conda#{MD5}
file:///srv/channel/linux-64/Own_Tool-1!2.0%2Blocal-0.conda#{SHA}
"""


def test_a_lock_file_is_urls_with_digests() -> None:
    found = packages_in(LOCK.encode(), "x86_64")
    assert [(each.name, each.algorithm) for each in found] == [
        ("_libgcc_mutex", "md5"),
        ("tzdata", "sha256"),
        ("python", "sha256"),
        ("r-base64enc", "md5"),
        ("own_tool", "sha256"),
    ]
    url = f"{FORGE}/linux-64/python-3.12.3-hab00c5b_0_cpython.conda"
    assert found[2] == Wanted(url, "python-3.12.3-hab00c5b_0_cpython.conda", "python", "sha256", SHA)
    assert found[4].file_name == "Own_Tool-1!2.0+local-0.conda"
    assert packages_in(b"\xef\xbb\xbf" + LOCK.replace("\n", "\r\n").encode(), "x86_64") == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{FORGE}/linux-64/a-1-0.conda\n", "line 2 has no digest: a-1-0.conda; write it with `conda list --explicit --sha256`"),
        (f"{FORGE}/osx-arm64/a-1-0.conda#{SHA}\n", "line 2: a-1-0.conda is for osx-arm64 and this host is linux-64"),
        (f"{FORGE}/a-1-0.conda#{SHA}\n", "line 2: a-1-0.conda is for conda-forge and this host is linux-64"),
        (f"{FORGE}/linux-64/a-1-0.conda#{SHA[1:]}\n", "line 2 is not URL#DIGEST: a URL"),
        (f"{FORGE}/linux-64/a-1-0.conda#sha256:{MD5}\n", "line 2 is not URL#DIGEST: a URL"),
        (f"{FORGE}/linux-64/a-1-0.conda#{SHA} --no-deps\n", "line 2 is not URL#DIGEST"),
        (f"{FORGE}/linux-64/a-1-0.zip#{SHA}\n", "line 2 names no package (NAME-VERSION-BUILD.conda or .tar.bz2): a URL"),
        (f"{FORGE}/linux-64/a.conda#{SHA}\n", "line 2 names no package"),
        (f"{FORGE}/linux-64/../linux-64/a-1-0.conda#{SHA}\n", "line 2 is no URL of a channel"),
        (f"{FORGE}/linux-64/..%2Fa-1-0.conda#{SHA}\n", "line 2 is no URL of a channel"),
        (f"ftp://h/linux-64/a-1-0.conda#{SHA}\n", "line 2 is no URL of a channel (https, http or file): a URL"),
        (f"https:///linux-64/a-1-0.conda#{SHA}\n", "line 2 is no URL of a channel"),
        (f"file://h/linux-64/a-1-0.conda#{SHA}\n", "line 2 is no URL of a channel"),
        (f"../linux-64/a-1-0.conda#{SHA}\n", "line 2 is no URL of a channel"),
        (f"https://me:hunter2@h/c/linux-64/a-1-0.conda#{SHA}\n", "line 2 has a password in its URL"),
        (f"https://conda.anaconda.org/t/hunter2/c/linux-64/a-1-0.conda#{SHA}\n", "line 2 has a password in its URL"),
        (f"https://h/c/linux-64/a-1-0.conda?token=hunter2#{SHA}\n", "line 2 has a password in its URL"),
        ("https://me:hunter2@h/c/linux-64/a-1-0.conda\n", "line 2 has no digest: a-1-0.conda"),
        ("https://me:hunter2@h\n", "line 2 has no digest: a URL"),
        (f"https://h:hunter2/c/linux-64/a-1-0.conda#{SHA}\n", "line 2 is not URL#DIGEST"),
        (f"{FORGE}/linux-64/a-1-0.conda#{SHA}\n{FORGE}/noarch/A-2-0.conda#{MD5}\n", "it names a twice: a-1-0.conda and A-2-0.conda"),
        (f"# no URL for: own-1-0.conda\n{FORGE}/linux-64/a-1-0.conda#{SHA}\n", "line 2: own-1-0.conda has no URL, so it is not installed"),
        (f"# pip numpy @ https://me:hunter2@h/n.whl --hash=sha256:{SHA}\n", "line 2: numpy is one of pip, so it is not installed"),
        ("numpy=1.26\n", "line 2 is not URL#DIGEST: 'numpy=1.26'"),
        ("# pip is in no file of this kind\n", "it names no package; write it with"),
    ],
)
def test_what_is_no_lock_file_is_refused_by_line_and_tells_no_secret(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        packages_in(f"@EXPLICIT\n{text}".encode(), "x86_64")
    assert told in caught.value.message and "hunter2" not in caught.value.message and caught.value.code == "lock_file_invalid"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "name: fit\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.12\n",
            "it is an environment file, which says what to install",
        ),
        ("dependencies: [python]\n", "write down what is in it: `conda list --explicit --sha256 > conda.lock`"),
        ("version: 1\nmetadata:\n  channels:\n  - url: conda-forge\npackage:\n- name: a\n", "`conda-lock render -k explicit`"),
        ("version: 6\nenvironments:\n  default:\n    channels:\n", "`pixi workspace export conda-explicit-spec DIRECTORY`"),
        ("numpy=1.26.4=py312\n", "it has no line @EXPLICIT; write it with"),
        ("", "it has no line @EXPLICIT"),
    ],
)
def test_what_conda_users_may_name_instead_says_how_to_make_the_right_one(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        packages_in(text.encode(), "x86_64")
    assert told in caught.value.message and caught.value.code == "lock_file_invalid"


def test_the_platform_is_the_hosts() -> None:
    for machine, subdir in SUBDIRS.items():
        line = f"@EXPLICIT\n{FORGE}/{subdir}/a-1-0.conda#{SHA}\n".encode()
        assert len(packages_in(line, machine)) == 1
        with pytest.raises(InvalidInput, match="and this host is"):
            packages_in(line, "aarch64" if machine != "aarch64" else "x86_64")


def test_its_size_is_bounded() -> None:
    def lines(count: int) -> bytes:
        return b"@EXPLICIT\n" + b"".join(f"http://h/noarch/p{i}-1-0.conda#{MD5}\n".encode() for i in range(count))

    assert len(packages_in(lines(20_000), "x86_64")) == 20_000
    for raw, told in ((b"x" * (8 * 2**20 + 1), "larger than 8 MiB"), (b"\xff", "not UTF-8"), (lines(20_001), "more than 20,000 packages")):
        with pytest.raises(InvalidInput, match=told):
            packages_in(raw, "x86_64")


@given(st.text(st.sampled_from("ab1=-[]?@:#/. t\n%2F") | st.characters(max_codepoint=0x2FF), max_size=40))
def test_whatever_is_written_a_url_has_no_password_and_its_name_no_way_out(text: str) -> None:
    for written in (
        text,
        f"https://{text}/linux-64/a-1-0.conda#{SHA}",
        f"https://h/{text}/linux-64/a-1-0.conda#{SHA}",
        f"http://h/noarch/{text}#{MD5}",
    ):
        try:
            found = packages_in(f"@EXPLICIT\n{written}".encode("utf-8", "surrogatepass"), "x86_64")
        except InvalidInput:
            continue
        for each in found:
            assert "@" not in each.url.split("/")[2] and "/t/" not in each.url.removesuffix(each.file_name)
            assert "/" not in each.file_name and each.file_name not in (".", "..") and "?" not in each.url and "#" not in each.url
