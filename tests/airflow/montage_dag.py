"""A DAG as its author writes it: files stand in inlets and outlets, and nowhere else. STAGER_TEST_LAB is the URL where its data lives.

Two tiles are projected with a header that both need, by a function and by a command; a mosaic is made of them, and goes home.
"""

from __future__ import annotations

import os
from pathlib import Path

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, task

LAB = os.environ["STAGER_TEST_LAB"]
header = Asset("header", uri=f"{LAB}/region.hdr")
raw = [Asset(f"raw{n}", uri=f"{LAB}/raw/t{n}.fits", extra={"size_bytes": 200_000}) for n in (1, 2)]
projected = [Asset(f"p{n}", uri=f"stager://montage/p{n}.fits") for n in (1, 2)]
mosaic = Asset("mosaic", uri=f"{LAB}/out/mosaic.fits")

with DAG("montage", schedule=None, start_date=pendulum.datetime(2024, 1, 1), catchup=False) as dag:

    @task.stager(inlets=[header, raw[0]], outlets=[projected[0]])
    def project(files):
        files[projected[0]].write_bytes(files["header"].read_bytes() + files[raw[0]].read_bytes())

    by_command = BashOperator(
        task_id="project_by_command",
        bash_command=f"cat {{{{ macros.stager.input('{header.uri}') }}}} {{{{ macros.stager.input('{raw[1].uri}') }}}}"
        f" > {{{{ macros.stager.output('{projected[1].uri}') }}}}",
        inlets=[header, raw[1]],
        outlets=[projected[1]],
    )

    @task.stager(inlets=[*projected], outlets=[mosaic])
    def add(files):
        Path(files[mosaic]).write_bytes(b"".join(files[each].read_bytes() for each in projected))

    [project(), by_command] >> add()
