"""Where Pegasus catalogs say that files are: as origins with a base that all files share, without secrets, or named as not served."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.files import Location
from stager.model.workflow import OriginKind
from stager.readers.pegasus_places import NotServed, Pfn, Places, parse_pfn


@pytest.mark.parametrize(
    ("text", "kind", "root", "path"),
    [
        ("/data/a b", OriginKind.FILE, "file://", "/data/a b"),
        ("in/a", OriginKind.FILE, "file://", "/wf/in/a"),
        ("file:///data/a%20b", OriginKind.FILE, "file://", "/data/a b"),
        ("file://localhost//data//a", OriginKind.FILE, "file://", "/data/a"),
        ("scp://me@host:22/d/a", OriginKind.SFTP, "sftp://me@host:22", "/d/a"),
        ("sftp://host/~/a", OriginKind.SFTP, "sftp://host", "/~/a"),
        ("https://host/d/a", OriginKind.HTTP, "https://host", "/d/a"),
        ("https://host/cgi/dss?v=a+b&u=http://x/%41", OriginKind.HTTP, "https://host?", "/cgi/dss?v=a+b&u=http:%2F%2Fx%2F%41"),
        ("http://host:81/a%3Fb", OriginKind.HTTP, "http://host:81", "/a?b"),
        ("s3://bucket/d/a%20b", OriginKind.S3, "s3://bucket", "/d/a%20b"),
        ("s3://me@amazon/bucket/d/a", OriginKind.S3, "s3://bucket", "/d/a"),
    ],
)
def test_places(text: str, kind: OriginKind, root: str, path: str) -> None:
    assert parse_pfn(text, Path("/wf")) == Pfn(kind, root, path)


@pytest.mark.parametrize("text", ["gsiftp://host/a", "file://other/a", "s3://me@minio/bucket/a", "root://host/a"])
def test_what_is_elsewhere_is_told_apart(text: str, tmp_path: Path) -> None:
    with pytest.raises(NotServed):
        parse_pfn(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "/a\0b", "/data/../etc/x", "file:///a/../b", "$HOME/a", "sftp://host", "https://host/a?sig=HUSH", "http://me@host/a?x=HUSH",
        "https://host/a?x=1&X-Amz-Signature=HUSH", "https://host/a?AWSAccessKeyId=HUSH", "https://host/a?api_key=HUSH",
        "https://host/a?x#HUSH", "https://host/a%3Fb?HUSH", "https://host?q=HUSH", "sftp://me:HUSH@host/a",
        "s3://KEY:HUSH@amazon/b/a", "s3://bucket", "s3://bucket/a?HUSH", "/data/.stager/x",
    ],
)  # fmt: skip
def test_what_is_no_place_is_wrong_and_no_secret_is_repeated(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        parse_pfn(text, tmp_path)
    assert "HUSH" not in str(caught.value)


def test_one_origin_for_each_host_based_where_its_files_lie(tmp_path: Path) -> None:
    texts = ["/data/a/x", "/data/b c/y", "sftp://h/p/q/x", "sftp://me@h/x", "s3://bu/k/1", "s3://bu/k/2", "s3://other/1", "/z"]
    pfns = [parse_pfn(text, tmp_path) for text in texts]
    places = Places(pfns[:-1], taken=["local"])
    assert {name: origin.url for name, origin in places.origins.items()} == {
        "local-2": "file:///data",
        "sftp-h": "sftp://h/p/q",
        "sftp-h-2": "sftp://me@h",
        "s3-bu": "s3://bu/k",
        "s3-other": "s3://other",
    }
    assert [places.locate(pfn) for pfn in pfns[1:4]] == [Location("local-2", "b c/y"), Location("sftp-h", "x"), Location("sftp-h-2", "x")]
    assert Places(pfns).origins["local"].url == "file:///" and Places(pfns).locate(pfns[0]) == Location("local", "data/a/x")
    assert Places([parse_pfn("/data/b c/y", tmp_path)]).origins["local"].url == "file:///data/b%20c"


def test_what_is_asked_with_a_query_has_an_origin_of_its_own(tmp_path: Path) -> None:
    pfns = [parse_pfn(text, tmp_path) for text in ("http://h/cgi/dss?r=1", "http://h/cgi/dss?r=2", "http://h/cgi/dss%3Fr=1")]
    places = Places(pfns)
    assert {origin.name: (origin.url, origin.options) for origin in places.origins.values()} == {
        "http-h": ("http://h/cgi", (("queries", "true"),)),
        "http-h-2": ("http://h/cgi", ()),
    }
    assert [places.locate(pfn) for pfn in pfns] == [
        Location("http-h", "dss?r=1"),
        Location("http-h", "dss?r=2"),
        Location("http-h-2", "dss?r=1"),
    ]
    asked, named = places.origins["http-h"], places.origins["http-h-2"]
    assert asked.place != named.place and asked.identity != named.identity
