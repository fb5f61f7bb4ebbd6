"""Ctrl-C at any instant of a command's start, in real processes: never a traceback, and nothing left that is half made.

When a module has been imported is read from Python's own report (PYTHONPROFILEIMPORTTIME), so an instant is a place and no time.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.cli.exits import Exit
from stager.cli.main import COMMANDS
from stager.worker.reaper import is_held
from tests.testbed.stager import Stager, hear_ctrl_c
from tests.testbed.waiting import wait_until

CONSOLE_SCRIPT = str(Path(sys.executable).parent / "stager")
FIRST = "stager.cli.start"
TRIES = 10
IMPORTED = re.compile(r"import time: +\d+ \| +\d+ \| +(\S+)$")


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    made = Stager(short_dir / "s", short_dir / "home")
    yield made
    made.end()


WHEN_AN_OBJECT_ENDS = """
import signal
from stager.cli.main import CtrlC

class Ends:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

with CtrlC() as ctrl_c:
    try:
        ends = Ends()
        del ends
        signal.pause()
    except KeyboardInterrupt:
        print("heard", ctrl_c.pressed)
"""


WHEN_IT_WAS_HALF_MADE = """
import contextlib
import signal
import sys
from stager.cli.main import CtrlC

class HalfMade:
    def __del__(self):
        raise AttributeError("half made")

with CtrlC():
    early, late = HalfMade(), HalfMade()
    if sys.argv[1:]:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    del early
print("over", flush=True)
"""


WHILE_C_CODE_IS_IMPORTED = """
import os
import signal
import sys
from stager.cli.start import main

class CtrlC:
    pressed = False

    def find_spec(self, name, path=None, target=None):
        if self.pressed and not name.startswith("stager.cli."):
            print("imported after it:", name, file=sys.stderr)
        elif name == "numbers":
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["stager", "validate", "--help"]
main()
"""


def pressed(stager: Stager, words: list[str], when: str, more: int = 0, after_s: float = 0.0) -> tuple[int, str, bool]:
    """Exit code, what it said, and whether it came so far: Ctrl-C when the module `when` is imported and so many others after it."""
    environment = stager.environment() | {"PYTHONPROFILEIMPORTTIME": "1"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=environment, preexec_fn=hear_ctrl_c, **streams) as process:
        assert process.stderr is not None and process.stdout is not None
        said, left, came = "", -1, False
        for line in map(bytes.decode, process.stderr):
            found = IMPORTED.match(line.rstrip())
            if found is None:
                said += line if not line.startswith("import time:") else ""
            elif found[1] == when:
                left = more
            elif left >= 0 and not came:
                left -= 1
            if left == 0 and not came:
                came = True
                # So that instants are met in which nothing is imported.
                time.sleep(after_s)
                os.kill(process.pid, signal.SIGINT)
        process.stdout.read()
    return process.returncode, said, came


def pressed_in_time(stager: Stager, words: list[str], when: str, more: int = 0) -> tuple[int, str, bool]:
    """As `pressed`. On a busy machine a short command may be over before it is told: that says nothing, and it is done again."""
    for _ in range(TRIES):
        code, said, came = pressed(stager, words, when, more)
        if code != Exit.OK:
            break
    return code, said, came


@pytest.mark.parametrize("words", [[CONSOLE_SCRIPT], [sys.executable, "-m", "stager.cli"]], ids=["script", "module"])
@pytest.mark.parametrize("more", [0, 1, 5, 20, 40])
def test_while_the_program_is_imported(stager: Stager, words: list[str], more: int) -> None:
    code, said, came = pressed_in_time(stager, [*words, "--version"], FIRST, more)
    # Behind a ^C on a terminal, the command itself begins a new line.
    assert came and (code, said.strip()) == (Exit.INTERRUPTED, "interrupted")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_while_a_command_is_imported(stager: Stager, name: str) -> None:
    """What a command is made of stands in `stager.cli.options` or, of those that need none, in click's own module."""
    others = {"completion": "click.shell_completion", "shutdown": "click.shell_completion"}
    when = others.get(name, "stager.cli.options")
    code, said, came = pressed_in_time(stager, [CONSOLE_SCRIPT, name, "--help"], when)
    assert came and (code, said.split()) == (Exit.INTERRUPTED, ["interrupted"])


def test_while_an_object_ends() -> None:
    """Python lets no exception out there, nor out of the function that is told so."""
    words = [sys.executable, "-c", WHEN_AN_OBJECT_ENDS]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, preexec_fn=hear_ctrl_c)
    assert (found.stdout, found.stderr) == ("heard True\n", "")


@pytest.mark.parametrize("presses", [True, False])
def test_what_is_half_made_then_ends_without_a_word(presses: bool) -> None:
    """An event loop, for one, which is freed when all is over. Where nobody pressed anything it is told."""
    words = [sys.executable, "-c", WHEN_IT_WAS_HALF_MADE, *(["press"] if presses else [])]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, preexec_fn=hear_ctrl_c)
    assert (found.returncode, found.stdout) == (0, "over\n")
    assert found.stderr.count("AttributeError: half made") == (0 if presses else 2), found.stderr


def test_what_was_being_imported_is_not_imported_again_to_say_so() -> None:
    """`msgspec` imports `decimal`, and this `numbers`: C code that is begun a second time may say so, or worse."""
    words = [sys.executable, "-c", WHILE_C_CODE_IS_IMPORTED]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, preexec_fn=hear_ctrl_c)
    assert (found.returncode, found.stdout, found.stderr.split()) == (Exit.INTERRUPTED, "", ["interrupted"])


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2, 0.5, 1.2])
def test_while_a_workflow_is_read_planned_and_submitted(stager: Stager, short_dir: Path, after_s: float) -> None:
    """A run that is there by then is interrupted, and goes on when it is resumed; its scheduler ends by itself."""
    (short_dir / "w.yml").write_text("stager: 1\nname: w\njobs:\n  a: {run: 'sleep 0.5; echo x > x', outputs: {x: 'here:out/x'}}\n")
    words = [CONSOLE_SCRIPT, "submit", str(short_dir / "w.yml")]
    code, said, came = pressed(stager, words, "stager.service.profiles", after_s=after_s)
    assert came and "Traceback" not in said and "Exception" not in said
    # A run whose only job runs is drained, and ends well.
    allowed = (Exit.INTERRUPTED, Exit.OK) if after_s > 0.2 or "draining" in said else (Exit.INTERRUPTED,)
    assert code in allowed, said
    runs = stager.json("runs") if stager.state_dir.is_dir() else []
    for run in runs:
        stager.run("resume", run["run"])
        assert (short_dir / "out" / "x").read_text() == "x\n"


def test_while_a_run_that_is_there_is_followed(stager: Stager, short_dir: Path) -> None:
    """Of the instants above maybe none comes when there is a run."""
    gate = short_dir / "gate"
    (short_dir / "w.yml").write_text(
        f"stager: 1\nname: w\njobs:\n  a: {{run: 'until test -e {gate}; do sleep 0.05; done; echo x > x', outputs: [x]}}\n"
        "  b: {run: cp x y, inputs: [x], outputs: {y: 'here:out/y'}}\n"
    )
    states = lambda: [run["state"] for run in stager.json("runs")]  # noqa: E731
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    words = [CONSOLE_SCRIPT, "submit", str(short_dir / "w.yml")]
    with subprocess.Popen(words, env=stager.environment(), preexec_fn=hear_ctrl_c, text=True, **streams) as process:
        try:
            wait_until(lambda: stager.state_dir.is_dir() and states() == ["active"], "the run to be there")
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            said = "".join(itertools.takewhile(lambda line: "draining" not in line, process.stdout))
            # It says so before the scheduler has heard it.
            wait_until(lambda: states() != ["active"], "the run to be drained")
        finally:
            gate.touch()
        said += process.communicate(timeout=120)[0]
    assert process.returncode == Exit.INTERRUPTED and "Traceback" not in said, said
    stager.run("resume", "w-1")
    assert (short_dir / "out" / "y").read_text() == "x\n"


@pytest.mark.parametrize("when", ["stager.service.process", "stager.service.rest", "stager.service.rest.openapi"])
def test_while_a_service_starts(stager: Stager, when: str) -> None:
    """Also while it imports what it answers with, when its I/O node is there already: it ends with it."""
    stager.state_dir.mkdir(mode=0o700)
    (stager.state_dir / "tenants.toml").write_text("[tenants.a]\n")
    code, said, came = pressed(stager, [CONSOLE_SCRIPT, "serve", "--listen", "127.0.0.1:0", "--storage", "0"], when)
    assert came and "Traceback" not in said and code in (Exit.OK, Exit.INTERRUPTED)
    assert not (stager.state_dir / "node" / "rendezvous.json").exists() or not is_held(str(stager.state_dir / "node" / "lock"))
