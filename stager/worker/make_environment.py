"""`python -m stager.worker.make_environment KIND LOCK DIRECTORY`: makes the environment of a lock file, once, and prints where it is.

May know: the kinds of environments, one directory. A process of its own, since it takes minutes. One rule: it is made under its lock, and
the word that it is whole comes last.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.model.errors import Refused, StagerError
from stager.worker import make_conda, make_venv
from stager.worker.environment_tree import digest_of_tree, is_whole, make_read_only, remove
from stager.worker.installing import NOT_MADE_CODE
from stager.worker.kept_directory import locked, tree_bytes, used_now
from stager.worker.place import TOLD, publish_json

KINDS = {"venv": make_venv, "conda": make_conda}


def made(kind: str, path: Path, directory: Path) -> Path:
    """Raises StagerError."""
    if os.pathsep in os.fspath(directory):
        text = f"{directory} has {os.pathsep!r} in its name, which no directory on a PATH can have; use another state directory"
        raise Refused(text, code="path_unusable")
    maker = KINDS[kind]
    wanted: Any = maker.read(path.read_bytes())
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = directory / hashlib.sha256("\0".join(maker.words_of(wanted)).encode()).hexdigest()[:32]
    with locked(root, fcntl.LOCK_EX) as lock:
        if is_whole(root):
            # So that it stays until an attempt names it.
            used_now(root)
        else:
            # What somebody left who was ended.
            remove(root)
            try:
                finish(root, maker.make(root, wanted, lock, os.environ))
            except BaseException:
                remove(root)
                raise
    return root


def finish(root: Path, told: Mapping[str, Any]) -> None:
    make_read_only(root)
    os.chmod(root, 0o700)
    # A power cut leaves no half of it behind that says that it is whole.
    os.sync()
    publish_json(str(root / TOLD), {**told, "size_bytes": tree_bytes(root), "digest": digest_of_tree(root)})
    os.chmod(root, 0o500)


def main(arguments: list[str]) -> int:
    """Prints what Environments reads."""
    kind, *paths = arguments
    try:
        said: Mapping[str, Any] = {"root_dir": str(made(kind, *map(Path, paths)))}
    except StagerError as problem:
        fault = problem.fault()
        said = {"fault": {"error_class": fault.error_class.value, "code": fault.code, "message": fault.message, "subject": ""}}
    except OSError as problem:
        said = {"fault": {"error_class": "transient", "code": NOT_MADE_CODE, "message": str(problem), "subject": ""}}
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
