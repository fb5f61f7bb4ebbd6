"""What `stager check` says of isolation: whether this host can hold jobs to their sandboxes, and which jobs call what needs more rights.

May know: workflows, the reaper's probe. One rule: it notes, and stops nothing: a job that cannot be isolated runs all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stager.adapters.binary import find_ionode, isolation_of
from stager.model.errors import Refused
from stager.model.workflow import Job, Workflow
from stager.readers.shell_programs import programs_of
from stager.readers.shells import quotes_like_sh

# Of root, Landlock forbids mounts; of others, setuid has no effect.
NEED_RIGHTS = frozenset("sudo su doas mount umount fusermount fusermount3 chroot unshare podman apptainer singularity bwrap".split())


def isolation_notes(workflow: Workflow, environ: Mapping[str, str]) -> Iterator[str]:
    isolated = [job for job in workflow.jobs.values() if job.isolate and job.image is None]
    if not isolated:
        return
    try:
        held = isolation_of(find_ionode(environ))
    except Refused:
        return
    if held == "none":
        yield "jobs are not isolated here: this host gives this user neither a mount namespace nor Landlock"
        return
    told: set[str] = set()
    for job in isolated:
        for program in programs_in(job):
            name = program.rpartition("/")[2]
            if name in NEED_RIGHTS and name not in told:
                told.add(name)
                yield f"job {job.id!r} calls {name!r}, which may need rights that an isolated job has not: if it fails, say `isolate: off`"


def programs_in(job: Job) -> tuple[str, ...]:
    if job.shell and quotes_like_sh(job.interpreter):
        return programs_of(job.shell)[0]
    return job.argv[:1]
