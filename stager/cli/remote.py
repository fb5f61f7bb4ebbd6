"""`stager submit --server`: a workflow file as a service takes it, with what lies beside it, and the variables that its jobs name.

One rule: a variable leaves this machine only if the file itself names it in `env_pass`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from stager import rest
from stager.cli.exits import Exit
from stager.cli.options import Where, print_json
from stager.cli.progress import InterruptHandler, follow
from stager.cli.reach import reach_service
from stager.cli.sent_directory import SentDirectories
from stager.cli.summary import print_summary
from stager.client import RestClient, calls
from stager.model.errors import InvalidInput
from stager.model.workflow import Workflow
from stager.readers.pegasus_catalogs import names_beside
from stager.readers.sniff import WorkflowFormat, sniff
from stager.service.settings import Settings

PREFIX = "env."
CATALOGS = ("replicas", "transformations", "sites")


def submit_to(
    where: Where, settings: Settings, file: Path, options: rest.Options, *, detach: bool = False, quiet: bool = False, as_json: bool = False
) -> int:
    """The exit code, as of a run here."""
    submission, brought = submission_of(file, options), directories_of(file, settings.environ)

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    with reach_service(where) as client:
        if brought is not None:
            submission = submission.model_copy(update={"directories": brought.sent(client, say)})
        if detach:
            run = client.run(taken(client, submission, settings).run)
            print_json({"run": run.name, "state": run.wait(timeout_s=0).state}) if as_json else click.echo(run.name)
            return 0
        interrupts = InterruptHandler()
        # From here on the run may be there already, and Ctrl-C is for it.
        with interrupts.heard():
            submitted = taken(client, submission, settings)
            run = client.run(submitted.run)
            click.echo(f"run {run.name}: {submitted.workflow}, {submitted.jobs} jobs", err=True)
            follow(run, quiet=quiet or as_json, interrupts=interrupts)
        left = brought.bring_home(client, run.name, run.ledger(), say) if brought is not None else 0
        return int(print_summary(run, as_json=as_json)) or (int(Exit.NOT_DURABLE) if left else 0)


def directories_of(file: Path, environ: Mapping[str, str]) -> SentDirectories | None:
    """What of the workflow lies here; None: nothing."""
    if sniff(file) is not WorkflowFormat.NATIVE:
        return None
    found = SentDirectories(file, environ)
    return found if found.by_origin else None


def planned_at(where: Where, file: Path, options: rest.Options) -> tuple[rest.Planned, Workflow | None]:
    """The word of the service; and the workflow, where all of it can be read here."""
    # Nothing comes back, so nothing is compared.
    text, brought = text_of(file, options), directories_of(file, {})
    with reach_service(where) as client:
        if brought is not None:
            text = text.model_copy(update={"directories": brought.sent(client, lambda said: click.echo(said, err=True))})
        return client.send(calls.plan(text)), brought.workflow if brought is not None else None


def submission_of(file: Path, options: rest.Options) -> rest.Submission:
    return rest.Submission(**dict(text_of(file, options)))


def text_of(file: Path, options: rest.Options) -> rest.WorkflowText:
    """With the catalogs beside a Pegasus workflow, as its reader looks for them."""
    found = sniff(file)
    names = [name for word in CATALOGS for name in names_beside(file, word)] if found is WorkflowFormat.PEGASUS else []
    beside = {name: (file.parent / name).read_text() for name in names if (file.parent / name).is_file()}
    name = file.name if re.fullmatch(rest.FILE_NAME, file.name) else "workflow.yml"
    return rest.WorkflowText(workflow=file.read_text(), file_name=name, format=found.value, files=beside, options=options)


def taken(client: RestClient, submission: rest.Submission, settings: Settings) -> rest.Submitted:
    """Asked again with each variable that the service finds missing."""
    env: dict[str, str] = {}
    while True:
        try:
            return client.send(calls.submit(submission.model_copy(update={"env": env})))
        except InvalidInput as problem:
            name = problem.subject.removeprefix(PREFIX)
            if problem.code != "env_missing" or name in env or not is_named(submission.workflow, name):
                raise
            if name not in settings.environ:
                text = f"jobs take {name} from their submitter's environment (env_pass), and it is not set here"
                raise InvalidInput(f"{text}; export it", code="env_missing", subject=name) from None
            env[name] = settings.environ[name]


def is_named(workflow: str, name: str) -> bool:
    return "env_pass" in workflow and re.search(rf"\b{re.escape(name)}\b", workflow) is not None
