"""A lock file of Python packages: every package with its version and the digests of its files, and nothing else.

May know: text. One rule: what an installer is given is what was understood here, line by line; no option, no URL and no path gets through.
"""

from __future__ import annotations

import re

from stager.model.errors import InvalidInput

LOCK_BYTES_MAX, PACKAGES_MAX = 8 * 2**20, 20_000
SHOWN_CHARS = 80
INVALID_CODE = "lock_file_invalid"
HOW = "write it with `uv pip compile --generate-hashes` or `pip-compile --generate-hashes`"
COMMENT = re.compile(r"(?:^|\s)#.*$")
HASH = r"--hash=(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})"
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
REQUIREMENT = re.compile(
    rf"(?P<name>{NAME})\s*(?P<extras>\[[A-Za-z0-9,._\s-]*\])?\s*==\s*(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)\s*"
    rf"(?:;(?P<marker>[^;\\#]*?))?(?P<hashes>(?:\s+{HASH})*)"
)


def requirements_in(raw: bytes) -> list[str]:
    """One text for each package, in the order of the file. Raises InvalidInput that names the line."""
    if len(raw) > LOCK_BYTES_MAX:
        raise invalid(f"it is larger than {LOCK_BYTES_MAX >> 20} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise invalid("it is not UTF-8") from None
    found = [understood(number, line) for number, line in logical_lines(text) if line]
    if not found:
        raise invalid(f"it names no package; {HOW}")
    if len(found) > PACKAGES_MAX:
        raise invalid(f"it names more than {PACKAGES_MAX:,} packages")
    return found


def logical_lines(text: str) -> list[tuple[int, str]]:
    """With the number of the line that each begins in, without comments."""
    lines: list[tuple[int, str]] = []
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        begun = begun or number
        plain = COMMENT.sub("", line).rstrip()
        parts.append(plain.removesuffix("\\").strip())
        if not plain.endswith("\\"):
            lines.append((begun, " ".join(parts).strip()))
            begun, parts = 0, []
    return [*lines, (begun, " ".join(parts).strip())] if parts else lines


def understood(number: int, line: str) -> str:
    if line.startswith("-"):
        option = re.split(r"[\s=]", line)[0][:SHOWN_CHARS]
        where = "say in pip's configuration where packages come from (PIP_INDEX_URL, pip.conf)"
        raise invalid(f"line {number} has the option {option}, and options are not read from it; {where}")
    match = REQUIREMENT.fullmatch(line)
    marker = (match["marker"] or "").strip() if match is not None else ""
    if match is None or "--" in marker or not marker.isprintable():
        raise invalid(f"line {number} is not NAME==VERSION --hash=sha256:DIGEST: {shown(line)}; {HOW}")
    if not match["hashes"]:
        raise invalid(f"line {number} has no digest of {match['name']}; {HOW}")
    extras = re.sub(r"\s", "", match["extras"] or "")
    hashes = " ".join(match["hashes"].split())
    return f"{match['name']}{extras}=={match['version']}{f' ; {marker}' if marker else ''} {hashes}"


def shown(line: str) -> str:
    """Nothing of a URL, which may hold a password."""
    first = line.partition("--hash")[0].strip()
    if "://" in first:
        return "a URL"
    return repr(first if len(first) <= SHOWN_CHARS else f"{first[:SHOWN_CHARS]}…")


def invalid(what: str) -> InvalidInput:
    return InvalidInput(f"its lock file cannot be used: {what}", code=INVALID_CODE)
