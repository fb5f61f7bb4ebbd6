"""`origins:` of a native workflow: URLs, credential references, options.

May know: forms, model. One rule: no secret gets in, and none is repeated in a message.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

from stager.model.units import parse_size_bytes
from stager.model.workflow import Origin, OriginKind
from stager.readers.lines import Node, nearest
from stager.readers.native_form import Fields, Form, boolean_of, integer_of
from stager.readers.native_spec import ORIGIN_KEYS

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
VARIABLE = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{\w+\})")
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
REMOTE = re.compile(
    r"//(?:(?P<user>[^/]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>/.*)?", re.DOTALL
)
CREDENTIALS = re.compile(r"agent|anonymous|env:[A-Za-z_][A-Za-z0-9_]*|profile:[A-Za-z0-9_.@ -]+|key:\S.*")
KINDS = {
    "file": OriginKind.FILE,
    "sftp": OriginKind.SFTP,
    "sshfs": OriginKind.SSHFS,
    "s3": OriginKind.S3,
    "http": OriginKind.HTTP,
    "https": OriginKind.HTTP,
}
CREDENTIAL_KINDS = {
    OriginKind.SFTP: ("agent", "key"),
    OriginKind.SSHFS: ("agent", "key"),
    OriginKind.S3: ("env", "profile", "anonymous"),
    OriginKind.HTTP: ("env",),
    OriginKind.FILE: (),
}
SECRET_KEYS = frozenset(
    "password passwd secret token session_token private_key access_key_id secret_access_key aws_access_key_id aws_secret_access_key".split()
)
SECRET_WORDS = frozenset("sig signature token key apikey password passwd pwd secret credential credentials auth authorization".split())
NO_SECRETS = "secrets do not belong in a workflow file; write credentials: env:PREFIX, profile:NAME, agent or key:PATH"


def read_origins(form: Form, node: Node | None, base: Path) -> dict[str, Origin]:
    """All origins that can be read, and a place-holder for each that cannot, so that what refers to it gives no second finding."""
    origins: dict[str, Origin] = {}
    for name_node, value in form.pairs(node, "origins"):
        name, key = name_node.text, f"origins.{name_node.text}"
        if not NAME.fullmatch(name):
            form.findings.note(name_node.place, key, f"{name!r} cannot name an origin; use letters, digits, - and _, a letter first")
            continue
        origins[name] = read_origin(form, name, value, key, base) or Origin(name, OriginKind.FILE, "file:///nonexistent")
    return origins


def default_origin(base: Path) -> Origin:
    """`here`, unless the file says otherwise: the directory of the workflow file."""
    return Origin("here", OriginKind.FILE, file_url(".", base), beside_workflow=True)


def read_origin(form: Form, name: str, node: Node, key: str, base: Path) -> Origin | None:
    if node.kind == "scalar":
        found = read_url(form, node, key, base)
        return Origin(name, *found[:2], beside_workflow=is_relative(found[2])) if found else None
    if not form.expect(node, key, "mapping", "scalar"):
        return None
    for key_node, _ in node.items:
        if key_node.text.lower() in SECRET_KEYS:
            form.findings.note(key_node.place, form.join(key, key_node.text), NO_SECRETS)
            return None
    url_node = next((value for key_node, value in node.items if key_node.text == "url"), None)
    if url_node is None:
        form.findings.note(
            node.place,
            key,
            "the origin has no url; write url: file:DIR, sftp://USER@HOST/DIR, sshfs://…, s3://BUCKET/PREFIX or https://HOST/DIR",
        )
        return None
    found = read_url(form, url_node, form.join(key, "url"), base)
    if not found:
        return None
    kind, url, text = found
    fields = form.fields(node, key, ORIGIN_KEYS[kind.value])
    origin = Origin(name, kind, url, read_credentials(fields, kind), read_options(fields), beside_workflow=is_relative(text))
    plain = kind is OriginKind.HTTP and url.startswith("http:") and dict(origin.options).get("allow_http") != "true"
    if plain and origin.credentials:
        text = "these would go over http, where anyone on the way can read them; write https, or add allow_http: true"
        form.findings.note(fields.place("credentials"), fields.at("credentials"), text)
    return origin


def read_url(form: Form, node: Node, key: str, base: Path) -> tuple[OriginKind, str, str] | None:
    """The kind, the URL in one spelling, and as it is written, with the values of parameters in it."""
    text = form.bound(form.text(node, key), node, key)
    if not text:
        return None
    try:
        return *parse_url(text, base), text
    except ValueError as error:
        form.findings.note(node.place, key, str(error))
        return None


def is_relative(url: str) -> bool:
    """Of a directory that is named from where the workflow file lies."""
    scheme, _, rest = url.partition(":")
    return scheme.lower() == "file" and not rest.startswith("/")


def parse_url(text: str, base: Path) -> tuple[OriginKind, str]:
    """The kind and the URL in one spelling. Raises ValueError; a URL with a secret is not repeated in it."""
    match = URL.fullmatch(text)
    scheme = match[1].lower() if match else ""
    if match is None or scheme not in KINDS:
        shown = f"{scheme!r} is no kind of origin" if scheme else "this is no URL"
        raise ValueError(f"{shown}; write file:DIR, sftp://, sshfs://, s3:// or https://" + (nearest(scheme, KINDS) if scheme else ""))
    kind, rest = KINDS[scheme], match[2]
    if "\0" in rest:
        raise ValueError("the URL holds a NUL character")
    if kind is OriginKind.FILE:
        return kind, file_url(rest, base)
    parts = REMOTE.fullmatch(rest)
    check_no_secret(kind, rest, parts)
    if parts is None:
        raise ValueError(
            f"the URL should be {scheme}://HOST/DIRECTORY" if kind is not OriginKind.S3 else "the URL should be s3://BUCKET/PREFIX"
        )
    if ".." in (parts["path"] or "").split("/"):
        raise ValueError("the URL's path has '..'; write the directory itself")
    if kind is OriginKind.S3 and parts["port"]:
        raise ValueError("an s3 URL names a bucket; the server goes to endpoint:")
    return kind, f"{scheme}:{rest.rstrip('/')}"


def check_no_secret(kind: OriginKind, rest: str, parts: re.Match[str] | None) -> None:
    user = parts["user"] if parts else rest.rpartition("@")[0]
    if user and (":" in user.removeprefix("//") or kind in (OriginKind.S3, OriginKind.HTTP)):
        raise ValueError(f"the URL holds a password or key before '@'; {NO_SECRETS}")
    if "?" in rest or "#" in rest:
        raise ValueError(f"the URL has a query or fragment (a signed URL is a secret); write it up to the '?'; {NO_SECRETS}")


def check_query(query: str) -> None:
    """Raises ValueError where it carries a secret, as that of a signed URL does; it is not repeated."""
    names = [part.partition("=")[0].lower() for part in re.split("[&;]", query)]
    if any(name == "awsaccesskeyid" or not SECRET_WORDS.isdisjoint(re.split(r"[^a-z]+", name)) for name in names):
        raise ValueError(f"the query holds a key, token or signature; {NO_SECRETS}")


def file_url(rest: str, base: Path) -> str:
    """`file:DIR`, a path as it is, relative to the workflow file; or the URL `file:///DIR`, where %20 is a space."""
    if not rest.startswith("~") and (variable := VARIABLE.search(rest)):
        shown = variable[0]
        raise ValueError(f"{shown} is not replaced in URLs; write the directory's full path (file:///…/%24… if a name has a $ in it)")
    if rest.startswith("//"):
        if not rest.startswith("///"):
            raise ValueError("a file URL has no host; write file:///DIR or file:DIR")
        rest = unquote(rest[2:])
    if rest.startswith("~"):
        raise ValueError("'~' is not read in file URLs; write the directory's full path")
    return "file://" + quote(os.path.normpath(os.path.join(base, rest or ".")))


def read_credentials(fields: Fields, kind: OriginKind) -> str:
    """A reference, never the thing itself; so a wrong one is not shown."""

    def check(text: str) -> str:
        if not CREDENTIALS.fullmatch(text):
            raise ValueError(f"this is no reference to credentials; {NO_SECRETS}")
        if text.partition(":")[0] not in CREDENTIAL_KINDS[kind]:
            raise ValueError(
                f"{text.partition(':')[0]!r} credentials do not fit a {kind.value} origin; use {' or '.join(CREDENTIAL_KINDS[kind])}"
            )
        return text

    return fields.parsed("credentials", check, "")


OPTION_READERS: dict[str, Callable[[str], str]] = {
    "bandwidth": lambda text: str(parse_size_bytes(text)),
    "region": str,
    "known_hosts": str,
    "host_key_alias": str,
    "mount_point": str,
    "connections_max": lambda text: str(integer_of(text, 1)),
    "shell_checksum": lambda text: str(boolean_of(text)).lower(),
    "verify_source": lambda text: str(boolean_of(text)).lower(),
    "allow_http": lambda text: str(boolean_of(text)).lower(),
    "ca_file": str,
    "queries": lambda text: str(boolean_of(text)).lower(),
}


def read_options(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Sorted pairs of text, called as they are written."""
    options = {name: fields.parsed(name, read, "") for name, read in OPTION_READERS.items() if fields.get(name)}
    if fields.get("addressing"):
        options["addressing"] = fields.parsed("addressing", addressing_of, "path")
    if fields.get("endpoint"):
        allow_http = options.get("allow_http") == "true"
        options["endpoint"] = fields.parsed("endpoint", lambda text: endpoint_of(text, allow_http), "")
    return tuple(sorted((name, value) for name, value in options.items() if value))


def addressing_of(text: str) -> str:
    if text not in ("path", "virtual"):
        raise ValueError(f"{text!r} is unknown; choose path or virtual")
    return text


def endpoint_of(text: str, allow_http: bool) -> str:
    scheme, _, rest = text.partition(":")
    parts = REMOTE.fullmatch(rest)
    if scheme not in ("https", "http") or not parts:
        raise ValueError("the endpoint should be https://HOST[:PORT]" if "@" not in text else NO_SECRETS)
    check_no_secret(OriginKind.HTTP, rest, parts)
    if scheme == "http" and not allow_http:
        raise ValueError("the endpoint is http, which anyone on the way can read; write https, or add allow_http: true")
    return text.rstrip("/")
