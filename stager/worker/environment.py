"""The job's environment: little, known, and the same wherever it runs.

May know: an attempt's spec, what is told of its packages. One rule: nothing of the scheduler's own environment gets in but what `inherited`
was given on purpose.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from stager.worker.place import packages_told
from stager.worker.spec import SCRATCH, AttemptSpec

BASHES = ("/bin/bash", "/usr/bin/bash")
# What they print is none of the job's output, what it is given to read is not theirs, and a word of theirs is none of its command.
BY_SH = 'for stager_script in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do . "$stager_script" </dev/null >&2; done; exec "$@"'
BY_BASH = 'stager_command=("$@"); ' + BY_SH.replace('"$@"', '"${stager_command[@]}"')
DEFAULT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def job_environment(
    spec: AttemptSpec, sandbox: str, inherited: Mapping[str, str], images: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Declared variables win over inherited ones, ours that name the attempt over all. `images`: those that its image sets. `sandbox`: as
    the job finds it.
    """
    own = {"STAGER_RUN": spec.run_id, "STAGER_JOB": spec.job_id, "STAGER_ATTEMPT": spec.attempt_id}
    return DEFAULT | dict(images) | dict(inherited) | {"HOME": sandbox, "TMPDIR": f"{sandbox}/{SCRATCH}"} | dict(spec.env) | own


def with_packages(env: dict[str, str], directory: str, declared: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """As the `activate` of a virtual environment has it, or that of conda, but for what programs would set. `declared`: what the job says
    itself, and packages do not change.
    """
    if not directory:
        return env
    path, told = env.get("PATH"), packages_told(directory)
    found = env | {"PATH": f"{directory}/bin:{path}" if path else f"{directory}/bin"}
    if not told.get("conda"):
        return found | {"VIRTUAL_ENV": directory}
    set_by_packages = {name: value for name, value in told["variables"].items() if name not in declared and name != "PATH"}
    return found | set_by_packages | {"CONDA_PREFIX": directory, "CONDA_DEFAULT_ENV": directory, "CONDA_SHLVL": "1"}


def activation(directory: str) -> tuple[str, ...]:
    """What stands before a program's words, so that packages of its conda environment set what they have programs for: where the job runs,
    and as it runs itself.
    """
    if not directory or not packages_told(directory).get("activate"):
        return ()
    shell = next((shell for shell in BASHES if os.path.exists(shell)), None)
    words = (shell, "-c", BY_BASH) if shell is not None else ("/bin/sh", "-c", BY_SH)
    return (*words, "stager-activate")
