"""Rules for the pages and papers of the repository, as functions from text to findings. tests/test_tidy.py applies them.

May know: the layout of docs/decisions. One rule: a finding says where, what, and what to do instead.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator

# https://www.apache.org/licenses/LICENSE-2.0.txt, to the byte.
APACHE_2_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def licence_findings(text: bytes | None, pyproject: str, where: str) -> Iterator[str]:
    """`text`: of the LICENSE beside that pyproject.toml. A wheel carries only a file below its own pyproject.toml."""
    project = tomllib.loads(pyproject)["project"]
    if project.get("license") != "Apache-2.0" or project.get("license-files") != ["LICENSE"]:
        yield f'{where}: say license = "Apache-2.0" and license-files = ["LICENSE"], or its wheel carries no licence'
    if text is None:
        yield f"{where}: no LICENSE beside it; copy that of the repository's root"
    elif hashlib.sha256(text).hexdigest() != APACHE_2_SHA256:
        yield f"{where}: the LICENSE beside it is not the exact text of Apache-2.0"
