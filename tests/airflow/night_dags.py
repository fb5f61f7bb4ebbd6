"""DAGs for a real Airflow. STAGER_TEST_LAB is the URL where data lives, STAGER_TEST_LAB_DISK the directory that it is of.

`night`: a task that stages nothing makes an image at the lab while calibrations, which are there, are prefetched.
`lost`: a task that is killed, and one that somebody ends by hand, beside one that goes on.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, task

LAB, DISK = os.environ["STAGER_TEST_LAB"], os.environ["STAGER_TEST_LAB_DISK"]
START = {"schedule": None, "start_date": pendulum.datetime(2024, 1, 1), "catchup": False}
flat = Asset("flat", uri=f"{LAB}/region.hdr")
dark = Asset("dark", uri=f"{LAB}/raw/t1.fits", extra={"size_bytes": 200_000})
image = Asset("image", uri=f"{LAB}/night/image.fits")
reduced = Asset("reduced", uri="stager://night/reduced.fits")
catalog = Asset("catalog", uri=f"{LAB}/out/catalog.txt")
preview = Asset("preview", uri=f"{LAB}/out/preview.png")

with DAG("night", **START) as night:
    # It waits for whoever watches to have seen the calibrations come, while no task that reads them has begun.
    observe = BashOperator(
        task_id="observe",
        bash_command=f"until test -e {DISK}/prefetched; do sleep 0.2; done; mkdir -p {DISK}/night; echo image > {DISK}/night/image.fits",
        outlets=[image],
    )

    @task.stager(inlets=[image, flat, dark], outlets=[reduced])
    def reduce(files):
        files[reduced].write_bytes(b"".join(files[each].read_bytes() for each in (image, flat, dark)))

    @task.stager(inlets=[reduced, flat], outlets=[catalog])
    def extract(files):
        if not Path(DISK, "mended").exists():
            raise RuntimeError("the first try of this task fails")
        files[catalog].write_bytes(files[reduced].read_bytes().upper())

    draw = BashOperator(
        task_id="draw",
        bash_command=f"cp {{{{ macros.stager.input('{reduced.uri}') }}}} {{{{ macros.stager.output('{preview.uri}') }}}}",
        inlets=[reduced],
        outlets=[preview],
    )
    observe >> reduce() >> [extract(), draw]

with DAG("lost", **START) as lost:

    @task.stager(inlets=[dark], outlets=[Asset("never", uri=f"{LAB}/out/never")])
    def victim(files):
        shutil.copy(files[dark], files["never"])
        Path(DISK, "victim").write_text(str(os.getpid()))
        time.sleep(600)

    @task.stager(inlets=[dark])
    def ended_by_hand(files):
        Path(DISK, "ended_by_hand").write_bytes(files[dark].read_bytes())
        time.sleep(600)

    victim()
    ended_by_hand()
    BashOperator(task_id="beside", bash_command="sleep 600")
