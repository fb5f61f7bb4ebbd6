"""The Pegasus profiles of a job that stager uses: environment, cores, memory, run time, retries.

May know: the names of profiles. One rule: what is not used is noted by name, never an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from stager.model.units import SIZE_BYTES_MAX, parse_number
from stager.readers.native_jobs import SECRET_VARIABLE, VARIABLE
from stager.readers.pegasus_catalogs import Profiles
from stager.readers.pegasus_form import Reports
from stager.readers.pegasus_jobs import PegasusJob

MIB = 2**20
CONDOR_UNITS = {"": MIB, "K": 2**10, "M": MIB, "G": 2**30, "T": 2**40}


@dataclass(slots=True)
class ProfileSettings:
    cores: int = 1
    memory_bytes: int | None = None
    compute_s: float | None = None
    retries: int = 2
    env: dict[str, str] = field(default_factory=dict)
    env_pass: list[str] = field(default_factory=list)


def settings_of(reports: Reports, job: PegasusJob, layers: Iterable[Profiles]) -> ProfileSettings:
    """Later layers win; within one, a pegasus profile wins over the condor one that says the same."""
    merged: dict[tuple[str, str], str] = {}
    for layer in layers:
        for namespace, values in layer.items():
            for key, value in values.items():
                merged[namespace, key if namespace == "env" else key.lower()] = value
    settings = ProfileSettings()
    for (namespace, key), value in sorted(merged.items(), key=lambda item: item[0][0] == "pegasus"):
        if namespace == "env":
            add_variable(reports, job, settings, key, value)
        elif not apply(reports, job, settings, namespace, key, value):
            reports.note(f"profile {namespace}.{key} is not used", job.id)
    return settings


def add_variable(reports: Reports, job: PegasusJob, settings: ProfileSettings, name: str, value: str) -> None:
    if not VARIABLE.fullmatch(name) or "\0" in value:
        reports.wrong_in(job.id, job.place, "profiles.env", f"{name!r} cannot be set in an environment; use letters, digits and _")
    elif SECRET_VARIABLE.fullmatch(name):
        settings.env_pass.append(name)
        reports.note(
            f"env profile {name} looks like a secret: the value in the file is not used, it is taken from your environment", job.id
        )
    else:
        settings.env[name] = value


def apply(reports: Reports, job: PegasusJob, settings: ProfileSettings, namespace: str, key: str, value: str) -> bool:
    """False when the profile means nothing here."""
    match namespace, key:
        case ("pegasus", "runtime"):
            settings.compute_s = asked_number(reports, job, namespace, key, value)
        case ("pegasus", "cores") | ("condor", "request_cpus"):
            settings.cores = max(1, math.ceil(asked_number(reports, job, namespace, key, value) or 1))
        case ("pegasus", "memory") | ("condor", "request_memory"):
            settings.memory_bytes = memory_of(reports, job, namespace, key, value) or settings.memory_bytes
        case ("dagman", "retry"):
            settings.retries = int(asked_number(reports, job, namespace, key, value) or 0)
        case _:
            return False
    return True


def asked_number(reports: Reports, job: PegasusJob, namespace: str, key: str, value: str) -> float | None:
    try:
        number = parse_number(value.strip())
    except ValueError:
        number = -1.0
    if 0 <= number < 1e15:
        return number
    reports.wrong_in(job.id, job.place, f"profiles.{namespace}.{key}", f"{value!r} is not a number of 0 or more")
    return None


def memory_of(reports: Reports, job: PegasusJob, namespace: str, key: str, value: str) -> int | None:
    """Pegasus counts in MiB, as HTCondor does, which also takes `1 GB`."""
    word = value.strip().upper().removesuffix("B").rstrip()
    unit = word[-1:] if word[-1:] in CONDOR_UNITS and word[-1:] else ""
    number = asked_number(reports, job, namespace, key, word.removesuffix(unit) if unit else word) or 0.0
    memory_bytes = int(number * CONDOR_UNITS[unit])
    if memory_bytes <= SIZE_BYTES_MAX:
        return memory_bytes or None
    reports.wrong_in(job.id, job.place, f"profiles.{namespace}.{key}", f"{value!r} is more memory than any machine has")
    return None
