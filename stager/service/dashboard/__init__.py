"""The dashboard of `stager serve`: a few files that a browser loads from `/`, and which then calls the REST API as any other client does.

May know: nothing of the service. One rule: the files hold no secret and are the same for everybody, so they need no token; whatever is a
tenant's comes over the REST API.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response

PLACE = Path(__file__).parent
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Nothing comes from elsewhere and nothing goes elsewhere; no script stands in the page, and none can put text in as HTML.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Asked for anew each time, so that a page and its scripts are of one version.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Page:
    data: bytes
    media_type: str
    tag: str


def page_of(path: Path) -> Page:
    data = path.read_bytes()
    return Page(data, f"{MEDIA_TYPES[path.suffix]}; charset=utf-8", f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"')


def pages() -> dict[str, Page]:
    """By the path that they are asked for."""
    found = {f"/dashboard/{path.name}": page_of(path) for path in sorted(PLACE.iterdir()) if path.suffix in MEDIA_TYPES}
    return {"/": found.pop("/dashboard/index.html"), **found}


PAGES = pages()
PATHS = frozenset(PAGES)


def dashboard_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    async def page(request: Request) -> Response:
        found = PAGES[request.url.path]
        headers = HEADERS | {"ETag": found.tag}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.data, media_type=found.media_type, headers=headers)

    for path in PATHS:
        router.add_api_route(path, page, methods=["GET", "HEAD"])
    return router
