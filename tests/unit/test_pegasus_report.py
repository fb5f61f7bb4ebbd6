"""What stager-transfer tells monitord: a file that everybody may read, and that goes into Pegasus' database."""

from __future__ import annotations

from pathlib import Path

from pegasus_stager.lists import Transfer
from pegasus_stager.log import Log
from pegasus_stager.report import Report
from pegasus_stager.urls import Url


def test_the_password_of_a_url_is_in_no_report(tmp_path: Path) -> None:
    far, here = Url("sftp://me:hush-hush@lab.example:2222/raw/a", "lab", {}), Url(f"file://{tmp_path}/a", "local", {})
    report = Report()
    report.attempt(Transfer({"lfn": "a"}, [far], [here]), far, True, 0.0)
    report.attempt(Transfer({"lfn": "b"}, [here], [far]), here, False, 0.0)
    report.published(str(tmp_path), Log())
    (told,) = tmp_path.glob("*-transfer")
    text = told.read_text()
    assert text.count("sftp://me:***@lab.example:2222/raw/a") == 2 and "hush-hush" not in text
