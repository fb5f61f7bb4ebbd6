"""Files beside a workflow file that are part of its text: what it includes, and tables of a foreach.

May know: files. One rule: it is known afterwards which were read, so that they go along with the workflow and a change of one is seen.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from stager.model.errors import InvalidInput
from stager.readers.lines import read_text, require_file


@dataclass(slots=True)
class Beside:
    """The files that a workflow file names and that are part of its text. `root`: nothing outside of it is read; None: anything that the
    user may read. `read`: all that were, in order, each with the SHA-256 of its text.
    """

    root: Path | None = None
    read: dict[Path, str] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)

    def text(self, base: Path, name: str) -> tuple[Path, str]:
        """The file and its text, the same each time, whatever becomes of the file meanwhile. Raises InvalidInput."""
        if "\0" in name:
            raise InvalidInput(f"{name!r} holds a NUL character, and no file can be called so", code="workflow_invalid", subject=name)
        path = Path(os.path.normpath(base / name))
        if self.root is not None:
            root = Path(os.path.realpath(self.root))
            if name.startswith("/") or not Path(os.path.realpath(path)).is_relative_to(root):
                text = f"{name!r} leads out of the workflow's directory, and a service reads only what came with the workflow"
                raise InvalidInput(f"{text}; put the file below it", code="workflow_invalid", subject=name)
        if path not in self.texts:
            require_file(path, str(path))
            self.texts[path] = found = read_text(path, str(path))
            self.read[path] = hashlib.sha256(found.encode()).hexdigest()
        return path, self.texts[path]

    def with_digest(self, digest: str) -> str:
        """Of the workflow file's own digest and those of the files that were read; the same where there were none."""
        return hashlib.sha256(" ".join([digest, *self.read.values()]).encode()).hexdigest() if self.read and digest else digest
