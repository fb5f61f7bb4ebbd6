"""What is sent to a host that is brought up by ssh: what stager needs there, and what makes conda environments where that is here."""

from __future__ import annotations

from importlib.util import find_spec

from stager.adapters.own_software import needed_packages


def test_what_makes_conda_environments_goes_along_where_it_is_here() -> None:
    names = {package.name for package in needed_packages()}
    assert {"distributed", "msgspec"} < names and "paramiko" not in names
    assert ("py-rattler" in names) == (find_spec("rattler") is not None)
