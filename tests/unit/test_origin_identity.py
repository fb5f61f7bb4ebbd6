"""What an origin is, whatever a workflow calls it: its place in one spelling, and the identity that a denial is about."""

from __future__ import annotations

import pytest

from stager.model.workflow import Origin, OriginKind


def origin(url: str, credentials: str = "", **options: str) -> Origin:
    return Origin("name", OriginKind(url.partition(":")[0]), url, credentials, tuple(sorted(options.items())))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (origin("sftp://lab/data"), origin("sftp://ana@LAB:22//data/./")),
        (origin("sftp://lab/data"), origin("sshfs://lab/data", mount_point="/mnt")),
        (origin("sftp://ana@lab/~/data"), origin("sftp://ana@lab/%7E/data")),
        (origin("sftp://[::1]/data"), origin("sftp://[::1]:22/data")),
        (origin("file:///a%20b/c"), origin("file:///a b//c/")),
        (origin("file:///"), origin("file://localhost")),
        (origin("s3://bucket/pre"), origin("s3://bucket//pre/", "profile:other", region="eu")),
        (origin("s3://bucket", endpoint="https://minio"), origin("s3://bucket", endpoint="https://MINIO:443/")),
    ],
)
def test_one_place_in_two_spellings(one: Origin, other: Origin) -> None:
    assert one.place == other.place


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (origin("sftp://lab/data"), origin("sftp://lab:2022/data")),
        (origin("sftp://lab/data"), origin("sftp://lab/data2")),
        (origin("sftp://ana@lab/~/data"), origin("sftp://bob@lab/~/data")),
        (origin("sftp://lab/data"), origin("file:///data")),
        (origin("s3://bucket"), origin("s3://bucket", endpoint="https://minio")),
        (origin("s3://bucket", endpoint="https://one"), origin("s3://bucket", endpoint="https://two")),
        (origin("s3://bucket/a"), origin("s3://bucket/A")),
    ],
)
def test_two_places(one: Origin, other: Origin) -> None:
    assert one.place != other.place and one.identity != other.identity


def test_places_are_joined_with_paths_whatever_their_root() -> None:
    for whole, base, path in (
        ("file:///a/b/c", "file:///", "a/b/c"),
        ("file:///a/b/c", "file:///a", "b/c"),
        ("sftp://lab/a/b", "sftp://lab", "a/b"),
        ("s3://bucket/a/b", "s3://bucket/a", "b"),
    ):
        assert origin(whole).place == f"{origin(base).place}/{path}"


def test_who_asks_and_how_is_part_of_the_identity_and_what_it_is_called_or_how_fast_it_may_be_asked_is_not() -> None:
    lab = origin("sftp://ana@lab/data", "key:/k", known_hosts="/h")
    same = Origin("other", OriginKind.SSHFS, "sshfs://ana@lab:22/data", "key:/k", (("bandwidth", "5"), ("known_hosts", "/h")))
    assert lab.identity == same.identity
    others = [
        origin("sftp://bob@lab/data", "key:/k", known_hosts="/h"),
        origin("sftp://ana@lab/data", "agent", known_hosts="/h"),
        origin("sftp://ana@lab/data", "key:/k", known_hosts="/i"),
        origin("sftp://ana@lab/data/below", "key:/k", known_hosts="/h"),
    ]
    assert len({lab.identity, *(other.identity for other in others)}) == 5
