"""stager-transfer where a planned workflow calls it: the lists of plans, and a script of the shape of PegasusLite around a task.

One rule: the lists are those that the planner wrote; only their placeholder directory is replaced.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.testbed.pegasus import PLUGIN, ours, snapshot, surroundings
from tests.testbed.places import shared_files
from tests.testbed.planned import submit_directory

# The order in which DAGMan runs the jobs of the recorded diamond, with what each compute job writes.
PREPARE, STAGE_IN, STAGE_OUT = "create_dir_diamond_0_local", "stage_in_remote_local_0_0", "stage_out_local_local_2_0"
CLEANUPS = ("clean_up_local_level_3_0", "clean_up_local_level_4_0", "clean_up_local_level_5_0", "clean_up_local_level_6_0")
END = "cleanup_diamond_0_local"


PLANS = ["sharedfs", *(place.parent for place in shared_files("pegasus/planned/sharedfs/braindump.yml"))]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "recorded" if isinstance(plan, Path) else plan)
def test_a_planned_workflow(tmp_path: Path, plan: str | Path) -> None:
    """Its lists from first to last: in the end the final is at its place, and the directory of the run is gone."""
    place = tmp_path / "scratch"
    place.mkdir()
    (place / "f.a").write_bytes(b"input")
    lists = submit_directory(plan, tmp_path / "r", {"file:///scratch/": f"file://{place}/"}) / "00" / "00"

    def call(job: str) -> None:
        given = (lists / f"{job}.in").read_text()
        done = ours(given, tmp_path, "--threads", "2")
        assert done.code == 0, f"{job}: {done.said}"

    call(PREPARE)
    call(STAGE_IN)
    work = place / "w" / "scratch" / "r6"
    assert (work / "f.a").read_bytes() == b"input"
    for name in ("f.b1", "f.b2", "f.c1", "f.c2", "f.d"):
        (work / name).write_bytes(name.encode())
    call(STAGE_OUT)
    for job in CLEANUPS:
        call(job)
    assert list(work.iterdir()) == []
    call(END)
    assert set(snapshot(place)) == {"f.a", "w", "w/scratch", "w/out", "w/out/f.d"}
    assert (place / "w" / "out" / "f.d").read_bytes() == b"f.d"


LITE = """set -e
export PEGASUS_MULTIPART_DIR="$SUBMIT/multipart" KICKSTART_INTEGRITY_DATA="$SUBMIT/integrity"
WORK=$(mktemp -d "$SUBMIT/pegasus.XXXXXX")
cd "$WORK"
cp "$SUBMIT"/*.meta .

# stage in data and executables
{transfer} --threads 1 1>&2 << 'eof'
[
 {{ "type": "transfer", "linkage": "input", "lfn": "f.a", "id": 1,
    "src_urls": [ {{ "site_label": "condorpool", "url": "file://$SUBMIT/staging/none/f.a", "priority": 100, "checkpoint": "false" }},
                  {{ "site_label": "local", "url": "file://$SUBMIT/staging/f.a", "checkpoint": "false" }} ],
    "dest_urls": [ {{ "site_label": "condorpool", "url": "file://$PWD/f.a" }} ] }}
 ,
 {{ "type": "transfer", "linkage": "input", "lfn": "table", "id": 2, "verify_symlink_source": false,
    "src_urls": [ {{ "site_label": "condorpool", "url": "file://$SUBMIT/staging/table", "checkpoint": "false" }} ],
    "dest_urls": [ {{ "site_label": "condorpool", "url": "symlink://$PWD/table" }} ] }}
]
eof

# the task
tr a-z A-Z < f.a > f.b
cat table >> f.b

# a checkpoint that the task did not write
set +e
{transfer} --threads 1 1>&2 << 'eof'
[ {{ "type": "transfer", "id": 1,
    "src_urls": [ {{ "site_label": "condorpool", "url": "file://$PWD/state.checkpoint", "checkpoint": "true" }} ],
    "dest_urls": [ {{ "site_label": "local", "url": "file://$SUBMIT/staging/state.checkpoint" }} ] }} ]
eof
echo "checkpoint $?" > "$SUBMIT/said"
set -e

# stage out
{transfer} --threads 1 1>&2 << 'eof'
[ {{ "type": "transfer", "linkage": "output", "lfn": "f.b", "id": 1, "generate_checksum": true,
    "src_urls": [ {{ "site_label": "condorpool", "url": "file://$PWD/f.b", "checkpoint": "false" }} ],
    "dest_urls": [ {{ "site_label": "local", "url": "file://$SUBMIT/staging/out/f.b" }} ] }} ]
eof
cd "$SUBMIT"
rm -rf "$WORK"
"""


def test_around_a_task(tmp_path: Path) -> None:
    """Three calls within a second, their lists in here-documents that the shell does not expand: $PWD is expanded by the program itself."""
    (tmp_path / "staging").mkdir()
    (tmp_path / "multipart").mkdir()
    (tmp_path / "staging" / "f.a").write_bytes(b"abc\n")
    (tmp_path / "staging" / "table").write_bytes(b"table\n")
    (tmp_path / "f.a.meta").write_text(json.dumps([]))
    script = LITE.format(transfer=f"{shlex.quote(sys.executable)} -m pegasus_stager")
    environ = surroundings(SUBMIT=str(tmp_path), PYTHONPATH=str(PLUGIN), PEGASUS_TRANSFER_FALLBACK="")
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "standard output belongs to the task"
    assert (tmp_path / "staging" / "out" / "f.b").read_bytes() == b"ABC\ntable\n"
    assert (tmp_path / "said").read_text() == "checkpoint 1\n"
    reports = sorted((tmp_path / "multipart").iterdir(), key=lambda path: int(path.name.split("-")[0]))
    attempts = [attempt for path in reports for attempt in yaml.safe_load(path.read_text())[0]["transfer_attempts"]]
    assert [(attempt.get("lfn"), attempt["success"]) for attempt in attempts] == [
        ("f.a", False),
        ("f.a", True),
        ("table", True),
        (None, False),
        ("f.b", True),
    ]
    assert all(str(tmp_path) in attempt["src_url"] for attempt in attempts)
    blocks = yaml.safe_load((tmp_path / "integrity").read_text())
    assert blocks["f.b"]["sha256"] == hashlib.sha256(b"ABC\ntable\n").hexdigest()
