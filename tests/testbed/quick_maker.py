"""`python -m tests.testbed.quick_maker KIND FILE DIRECTORY`: makes a directory of what the file says, as unpackers of images do.

One rule: each call is told in `calls` beside the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(kind: str, file: str, directory: str) -> None:
    path = Path(file)
    said = path.read_text().strip()
    with path.with_name("calls").open("a") as calls:
        calls.write(f"{kind}\n")
    if said == "garbage":
        sys.exit("a bad day")
    if said == "invalid":
        print(json.dumps({"fault": {"error_class": "invalid_input", "code": "odd", "message": "it is odd", "subject": ""}}))
        return
    root = Path(directory) / said
    (root / "root").mkdir(parents=True, exist_ok=True)
    (root / "image.json").write_text("{}")
    print(json.dumps({"root_dir": str(root / "root")}))


main(*sys.argv[1:])
