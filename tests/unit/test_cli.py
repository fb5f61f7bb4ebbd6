"""The command line without a scheduler: help, exit codes, and how errors are said."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stager.cli import main as program
from stager.cli.exits import BY_CLASS, BY_STATE, Exit
from stager.cli.tables import console, print_table
from stager.model.errors import BY_CLASS as ERRORS
from stager.model.errors import ErrorClass, InvalidInput
from stager.scheduler.commands import RunOutcome

ROOT = Path(__file__).parents[2]


def test_every_command_has_help_with_an_example_that_names_it() -> None:
    for name in program.COMMANDS:
        result = CliRunner().invoke(program.stager, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert "Example:" in result.output, name
        assert re.search(rf"^\s+stager {name}\b", result.output, re.MULTILINE), name


def test_every_module_of_the_room_that_holds_a_command_is_listed() -> None:
    modules = {path.stem for path in (ROOT / "stager" / "cli").glob("*.py") if re.search(r"^def command\(", path.read_text(), re.MULTILINE)}
    assert modules == {name.replace("-", "_") for name in program.COMMANDS}


def test_exit_codes_are_the_documented_ones() -> None:
    page = (ROOT / "docs" / "operating" / "exit-codes.md").read_text()
    documented = {int(found) for found in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert documented == {int(code) for code in Exit}


def test_every_error_class_and_every_outcome_has_an_exit_code_of_its_own() -> None:
    assert set(BY_CLASS) == set(ErrorClass) and len(set(BY_CLASS.values())) == len(ErrorClass)
    assert set(BY_STATE) == {outcome.value for outcome in RunOutcome}


def test_a_mistyped_command_is_told_the_near_one() -> None:
    with pytest.raises(click.UsageError, match="Did you mean 'submit'"):
        program.stager.main(["submitt", "x.yml"], standalone_mode=False)


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_errors_become_one_message_and_their_exit_code(
    error_class: ErrorClass, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ERRORS[error_class]("mosaic.fits cannot be had: do this")

    monkeypatch.setattr(program.stager, "main", fail)
    with pytest.raises(SystemExit) as caught:
        program.main()
    assert caught.value.code == BY_CLASS[error_class]
    assert capsys.readouterr().err == "stager: mosaic.fits cannot be had: do this\n"


def test_a_file_that_cannot_be_used_is_named_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program.stager, "main", lambda **_: Path("/nonexistent/plan.json").write_text(""))
    with pytest.raises(SystemExit) as caught:
        program.main()
    assert caught.value.code == Exit.INVALID_INPUT
    assert capsys.readouterr().err == "stager: /nonexistent/plan.json: No such file or directory\n"


def test_a_time_that_is_none_is_said_as_every_other_wrong_option() -> None:
    result = CliRunner().invoke(program.stager, ["wait", "--timeout", "soon"])
    assert result.exit_code == 2 and "'soon' is not a duration" in result.output


def test_tables_print_names_with_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("job", "left"), ("file", "left")], [("project[raw/a.fits]", "o/[br].txt"), ("fit[2,red]", "[bold]x[/bold]")])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["project[raw/a.fits]", "o/[br].txt"],
        ["fit[2,red]", "[bold]x[/bold]"],
    ]


def test_a_line_stays_one_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Once it was broken in the middle, at a width that no terminal had."""
    line = "fetches 50 MB/s (assumed), " * 12
    console().print(line, markup=False)
    assert capsys.readouterr().out == f"{line}\n"
    print_table([("job", "left"), ("why", "left")], [("a", "word " * 60)])
    assert all(len(shown) <= 160 for shown in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell: str) -> None:
    result = CliRunner().invoke(program.stager, ["completion", shell])
    assert result.exit_code == 0 and "_STAGER_COMPLETE" in result.output


def test_completion_offers_commands_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(program.stager, {}, "stager", "_STAGER_COMPLETE")
    assert {item.value for item in complete.get_completions([], "re")} == {"replay", "report", "results", "resume"}
    assert "--detach" in {item.value for item in complete.get_completions(["submit"], "--d")}


def test_a_workflow_of_an_engine_is_not_submitted_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run would wait for calls that nobody makes."""
    monkeypatch.setenv("STAGER_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "a").write_text("x")
    file = tmp_path / "workflow.yml"
    file.write_text("stager: 1\nengine: airflow\njobs: {9.one: {inputs: ['here:a'], outputs: [b]}}\n")
    assert "valid: 1 job, " in CliRunner().invoke(program.stager, ["validate", str(file)]).output
    result = CliRunner().invoke(program.stager, ["submit", str(file)])
    assert result.exception is not None and "are run by airflow" in str(result.exception) and not (tmp_path / "state").exists()


def test_a_worker_takes_an_address_or_the_name_of_a_command() -> None:
    for words, told in ((["tls://a:1"], "Missing option '--node'"), (["tls://a:1", "--name", "h"], "'--node'"), (["up"], "'ssh://")):
        result = CliRunner().invoke(program.stager, ["worker", *words])
        assert result.exit_code == 2 and told in result.output, result.output


def test_a_plan_at_a_service_is_told_to_leave_out_only_what_a_service_has_not(tmp_path: Path) -> None:
    """--rerun and the like go along to it (tests/e2e/test_serve_reuse.py)."""
    file = tmp_path / "workflow.yml"
    file.write_text("stager: 1\njobs: {a: {run: 'true'}}\n")
    result = CliRunner().invoke(program.stager, ["plan", str(file), "--server", "http://127.0.0.1:1", "--rerun", "a", "--cores", "2"])
    assert result.exit_code == 2
    assert "--cores" in result.output and "--rerun" not in result.output


def test_a_variable_that_is_not_set_is_named_before_a_resume_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left out, and a job began without it."""
    monkeypatch.delenv("TOKEN_OF_MINE", raising=False)
    monkeypatch.setenv("STAGER_TOKEN", "t" * 40)
    with pytest.raises(InvalidInput, match="TOKEN_OF_MINE, and it is not set here; export it") as caught:
        program.stager.main(["resume", "r", "--server", "http://127.0.0.1:9", "--env", "TOKEN_OF_MINE"], standalone_mode=False)
    assert caught.value.subject == "TOKEN_OF_MINE"
