"""Wheels of Python packages, made here, so that tests need no index.

May know: the format. One rule: the same arguments make the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)


def wheel(directory: Path, name: str, version: str, text: str, *, needs: str = "") -> Path:
    """A package with one module and a program, both called NAME; the program calls the module's `main`."""
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (f"Requires-Dist: {needs}\n" if needs else "")
    members = {
        f"{name}.py": text,
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = [f"{path},sha256={digest(content.encode())},{len(content.encode())}" for path, content in members.items()]
    members[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for member, content in members.items():
            packed.writestr(zipfile.ZipInfo(member, EPOCH), content)
    return path


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def locked(*wheels: Path) -> str:
    """The lock file that names them."""
    lines = []
    for path in wheels:
        name, version, *_ = path.name.split("-")
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    return "".join(lines)
