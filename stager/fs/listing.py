"""Lists of a bucket, as the node writes them: every name as it was put.

May know: the S3 endpoint's XML and how its questions are signed. obstore, which reads and writes the objects, refuses a whole list for one
name that is no path to it, and takes `/a` for `a`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

import httpx

from stager import rest

ALGORITHM = "AWS4-HMAC-SHA256"
SIGNED_FOR_S = 300
PAGE = 1000
PLAIN = "-_.~"


@dataclass(frozen=True, slots=True)
class Page:
    """`objects` have obstore's words for what is known of them. `after`: what the next page is asked for by; empty: this is the last."""

    objects: list[dict[str, Any]]
    prefixes: list[str]
    after: str


def question(prefix: str, *, after: str = "", limit: int = 0, flat: bool = True) -> dict[str, str]:
    """`flat`: all that is below the prefix; else what is directly below it, and where it goes on."""
    words = {"list-type": "2", "encoding-type": "url", "max-keys": str(limit or PAGE), "prefix": prefix}
    return words | ({"continuation-token": after} if after else {}) | ({} if flat else {"delimiter": "/"})


def page_of(body: bytes) -> Page:
    root = ElementTree.fromstring(body)
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""

    def said(of: ElementTree.Element, name: str) -> str:
        return of.findtext(f"{space}{name}") or ""

    objects = [
        {
            "path": unquote(said(each, "Key")),
            "size": int(said(each, "Size")),
            "e_tag": said(each, "ETag"),
            "last_modified": datetime.fromisoformat(said(each, "LastModified")),
        }
        for each in root.iter(f"{space}Contents")
    ]
    prefixes = [unquote(said(each, "Prefix")) for each in root.iter(f"{space}CommonPrefixes")]
    return Page(objects, prefixes, said(root, "NextContinuationToken") if said(root, "IsTruncated") == "true" else "")


def signed(place: str, words: Mapping[str, str], given: rest.Storage, method: str = "GET", seconds: int = SIGNED_FOR_S) -> str:
    """A URL that is good for so long, and no longer than the key. `place`: with all that is odd in its path quoted, as `quoted` does it."""
    at = httpx.URL(place)
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{given.region}/s3/aws4_request"
    own = {"Algorithm": ALGORITHM, "Credential": f"{given.access_key_id}/{scope}", "Date": now, "Expires": str(seconds)}
    all_words = {**words, **{f"X-Amz-{name}": value for name, value in own.items()}, "X-Amz-SignedHeaders": "host"}
    query = "&".join(f"{quote(name, safe=PLAIN)}={quote(value, safe=PLAIN)}" for name, value in sorted(all_words.items()))
    request = "\n".join((method, urlsplit(place).path, query, f"host:{at.netloc.decode()}", "", "host", "UNSIGNED-PAYLOAD"))
    text = "\n".join((ALGORITHM, now, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{given.secret_access_key}".encode()
    for part in (now[:8], given.region, "s3", "aws4_request", text):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{place}?{query}&X-Amz-Signature={key.hex()}"


def quoted(key: str) -> str:
    return quote(key, safe=f"/{PLAIN}")
