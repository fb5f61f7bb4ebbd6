"""`stager submit --server`: a workflow file as a service takes it, with what lies beside it, and the variables that its jobs name.

One rule: a variable leaves this machine only if the file itself names it in `env_pass`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import click
from pydantic import ValidationError

from stager import rest
from stager.cli.exits import Exit
from stager.cli.options import Given, Where, print_json
from stager.cli.progress import InterruptHandler, follow
from stager.cli.reach import reach_service
from stager.cli.sent_directory import SentDirectories
from stager.cli.summary import print_summary
from stager.client import RestClient, calls
from stager.model.errors import InvalidInput, Refused
from stager.model.units import counted
from stager.model.workflow import Workflow
from stager.readers.lines import Node, read_text
from stager.readers.native_params import given_values
from stager.readers.pegasus_catalogs import names_beside
from stager.readers.sniff import WorkflowFormat, sniff
from stager.service.settings import Settings

PREFIX = "env."
NOTHING_GIVEN = Given()
CATALOGS = ("replicas", "transformations", "sites")


def submit_to(
    where: Where,
    settings: Settings,
    file: Path,
    options: rest.Options,
    given: Given = NOTHING_GIVEN,
    *,
    detach: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> int:
    """The exit code, as of a run here."""
    values = given_values(given.pairs, given.file)
    brought = directories_of(file, settings.environ, values)
    submission = submission_of(file, options, values, brought)
    brought = brought if brought is not None and brought.by_origin else None

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
            click.echo(f"run {run.name}: {submitted.workflow}, {counted(submitted.jobs, 'job')}", err=True)
            follow(run, quiet=quiet or as_json, interrupts=interrupts)
        left = brought.bring_home(client, run.name, run.ledger(), say) if brought is not None else 0
        return int(print_summary(run, as_json=as_json)) or (int(Exit.NOT_DURABLE) if left else 0)


def directories_of(file: Path, environ: Mapping[str, str], values: Mapping[str, Node]) -> SentDirectories | None:
    """What of the workflow lies here; None: its reader asks for it by itself."""
    return SentDirectories(file, environ, values) if sniff(file) is WorkflowFormat.NATIVE else None


def planned_at(where: Where, file: Path, options: rest.Options, given: Given) -> tuple[rest.Planned, Workflow | None]:
    """The word of the service; and the workflow, where all of it can be read here."""
    values = given_values(given.pairs, given.file)
    # Nothing comes back, so nothing is compared.
    brought = directories_of(file, {}, values)
    text = text_of(file, options, values, brought)
    with reach_service(where) as client:
        if brought is not None and brought.by_origin:
            text = text.model_copy(update={"directories": brought.sent(client, lambda said: click.echo(said, err=True))})
        return client.send(calls.plan(text)), brought.workflow if brought is not None else None


def submission_of(file: Path, options: rest.Options, values: Mapping[str, Node], brought: SentDirectories | None) -> rest.Submission:
    return rest.Submission(**dict(text_of(file, options, values, brought)))


def text_of(file: Path, options: rest.Options, values: Mapping[str, Node], brought: SentDirectories | None) -> rest.WorkflowText:
    """With the catalogs beside a Pegasus workflow, as its reader looks for them, and the files that a native one includes."""
    found = sniff(file)
    names = [name for word in CATALOGS for name in names_beside(file, word)] if found is WorkflowFormat.PEGASUS else []
    names += [name_below(path, file) for path in brought.beside.read] if brought is not None else []
    beside = {name: read_text(file.parent / name, name) for name in names if (file.parent / name).is_file()}
    name = file.name if re.fullmatch(rest.FILE_NAME, file.name) else "workflow.yml"
    params: dict[str, rest.ParamValue | rest.ParamList] = {each: sent(value) for each, value in values.items()}
    text = read_text(file, str(file))
    try:
        return rest.WorkflowText(workflow=text, file_name=name, format=found.value, files=beside, params=params, options=options)
    except ValidationError as problem:
        from stager.service.submissions import not_understood

        raise not_understood(problem) from None


def sent(value: Node) -> rest.ParamValue | rest.ParamList:
    return [member.text for member in value.items] if value.kind == "sequence" else value.text


def name_below(path: Path, file: Path) -> str:
    """Of a file that is part of a workflow's text, from where the workflow file lies. Raises Refused."""
    name = os.path.relpath(path, file.parent)
    if not re.fullmatch(rest.BESIDE_NAME, name):
        text = f"{path} is part of the workflow, and only what lies below {file.absolute().parent} goes to a service"
        advice = "put it there, with letters, digits, . _ and - in its name"
        raise Refused(f"{text}; {advice}", code="link_leads_out", subject=name)
    return name


def taken(client: RestClient, submission: rest.Submission, settings: Settings) -> rest.Submitted:
    """Asked again with each variable that the service finds missing. Tells what need not run."""
    env: dict[str, str] = {}
    while True:
        try:
            submitted = client.send(calls.submit(submission.model_copy(update={"env": env})))
            for line in submitted.reuse:
                click.echo(line, err=True)
            return submitted
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
