"""What the wheel of stager holds, asked of its build backend without building anything. One rule: nothing is written."""

from __future__ import annotations

import pytest

from tests.testbed.places import PROJECT


def files_of_the_wheel() -> set[str]:
    backend = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed (make setup-unit does it)")
    return {each.distribution_path for each in backend.WheelBuilder(str(PROJECT)).recurse_included_files()}
