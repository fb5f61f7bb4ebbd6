"""Names of recorded files as paths that are safe in a sandbox and below an origin.

May know: text only. One rule: the mapping is injective, and no path is a directory of another; a name that is safe already stays as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from stager.readers.paths import RESERVED_PREFIX

PLAIN = re.compile(r"[A-Za-z0-9_=@,#~+.-]+\Z")
NAME_CHARACTERS_MAX = 200
PATH_CHARACTERS_MAX = 1500


def safe_paths(names: Iterable[str]) -> dict[str, str]:
    """Each name with its path, in the order given."""
    paths = {name: safe_path(name) for name in names}
    directories: set[str] = set()
    for path in paths.values():
        above = path.rpartition("/")[0]
        while above and above not in directories:
            directories.add(above)
            above = above.rpartition("/")[0]
    return {name: path + "%.file" if path in directories else path for name, path in paths.items()}


def safe_path(name: str) -> str:
    """Percent signs mark what was changed: `%XX` a byte, a lone `%` an empty part, `%~` a digest of what was too long."""
    path = "/".join(safe_part(part) for part in name.split("/"))
    if len(path) <= PATH_CHARACTERS_MAX:
        return path
    return f"{path[:NAME_CHARACTERS_MAX].rpartition('/')[0] or 'long'}/%~{digest_of_text(name)}"


def safe_part(part: str) -> str:
    if PLAIN.match(part) and part not in (".", "..") and not part.startswith(RESERVED_PREFIX) and len(part) <= NAME_CHARACTERS_MAX:
        return part
    if not part:
        return "%"
    dots = part in (".", "..") or part.startswith(RESERVED_PREFIX)
    signs = [sign if PLAIN.match(sign) and not (dots and sign == ".") else escaped(sign) for sign in part]
    whole = "".join(signs)
    if len(whole) <= NAME_CHARACTERS_MAX:
        return whole
    return f"{''.join(signs[:12])}%~{digest_of_text(part)}"


def escaped(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode("utf-8", "surrogatepass"))


def digest_of_text(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
