"""Style is a test: the layers of the project, purity, sizes, dead modules, banned words. The rules are in tests/tidy_rules.py.

One rule: no exception without a reason written beside it.
"""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from tests import tidy_pages, tidy_services, tidy_words
from tests import tidy_rules as rules

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "stager"

# Modules that none of the package imports, and who calls them.
CALLED_FROM_OUTSIDE = {
    "stager.client": "plugins",
    "stager.fs": "fsspec",
    "stager.scheduler.invariants": "tests/sim, after every step of the Machine",
    "stager.sim.simulate": "tests/sim: the Machine that production runs, in the simulated world",
}

# Who else may read the environment, and why.
MAY_READ_ENVIRONMENT = {
    "stager/service/settings.py": "it is the reader",
    "stager/adapters/far_side.py": "a program of its own, which is sent to other hosts",
    "stager/fs/filesystem.py": "a client in programs of others, which have no settings of ours",
    "plugins/pegasus/pegasus_stager/settings.py": "Pegasus tells its programs through it what is asked of them; it is the plugin's reader",
    "stager/worker/make_environment.py": "pip and rattler are configured by it",
}

# What passes between the layers, and on the wire.
CONTRACTS = ("stager/ports.py", "stager/driver.py", "stager/wire/")

# What each plugin is called where it is installed, by its directory, and the modules that its scripts or its entry points start.
PLUGINS = {
    "plugins/pegasus/": ("pegasus_stager", {"pegasus_stager.main", "pegasus_stager.__main__"}),
    "plugins/airflow/src/": (
        "airflow.providers.stager",
        {"airflow.providers.stager.get_provider_info", "airflow.providers.stager.plugin", "airflow.providers.stager.fs.paths"},
    ),
}


@cache
def tracked() -> tuple[str, ...]:
    """Files of the project: known to git, or about to be."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    return tuple(sorted(path for path in listed.splitlines() if (PROJECT / path).is_file()))


pytestmark = pytest.mark.xdist_group("tidy")  # One worker runs them all, so that it parses each file once.


@cache
def parsed_or_error(path: str) -> ast.Module | SyntaxError:
    try:
        return ast.parse(text_of(path), path)
    except SyntaxError as error:
        return error


def parsed(path: str) -> ast.Module:
    """What does not parse is one finding, not one in every test."""
    found = parsed_or_error(path)
    return ast.parse('"""Does not parse."""') if isinstance(found, SyntaxError) else found


def text_of(path: str) -> str:
    return (PROJECT / path).read_text()


def python_files(*places: str) -> list[str]:
    return [path for path in tracked() if path.endswith(".py") and (not places or path.startswith(places))]


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_package(path: str) -> bool:
    return path.endswith("/__init__.py")


def assert_none(findings: Iterable[str]) -> None:
    found = list(findings)
    assert not found, "\n" + "\n".join(found)


def test_everything_parses() -> None:
    errors = {path: found for path in python_files() if isinstance(found := parsed_or_error(path), SyntaxError)}
    assert_none(f"{path}:{error.lineno}: {error.msg}" for path, error in errors.items())


def test_layers() -> None:
    for_each = (rules.layer_findings(parsed(path), module_name(path), is_package(path)) for path in python_files("stager/"))
    assert_none(chain.from_iterable(for_each))


def test_plugins_know_the_client_only() -> None:
    assert_none(chain.from_iterable(rules.plugin_findings(parsed(path), path) for path in python_files("plugins/")))


def test_what_runs_on_compute_nodes_runs_on_their_python() -> None:
    """requires-python of plugins/pegasus: what parses there. Names that came later are found by ruff (per-file-target-version)."""
    oldest = tomllib.loads(text_of("plugins/pegasus/pyproject.toml"))["project"]["requires-python"].removeprefix(">=")
    version = (int(oldest.split(".")[0]), int(oldest.split(".")[1]))
    for path in python_files("plugins/pegasus/"):
        ast.parse(text_of(path), path, feature_version=version)


def test_pure_packages_are_pure() -> None:
    assert_none(chain.from_iterable(rules.purity_findings(parsed(path), module_name(path)) for path in python_files("stager/")))


def test_python_sizes() -> None:
    assert_none(chain.from_iterable(rules.size_findings(parsed(path), text_of(path), path) for path in python_files()))


def test_rust() -> None:
    assert_none(chain.from_iterable(rules.rust_findings(text_of(path), path) for path in tracked() if path.endswith(".rs")))


def test_manners() -> None:
    silent = ("stager/", "plugins/")
    files = {path: path.startswith("stager/cli/") or not path.startswith(silent) for path in python_files()}
    assert_none(chain.from_iterable(rules.manner_findings(parsed(path), path, may_print=may) for path, may in files.items()))


def test_only_settings_reads_the_environment() -> None:
    readers = {path: list(rules.environment_findings(parsed(path), path)) for path in python_files("stager/", "plugins/")}
    assert_none(finding for path, findings in readers.items() if path not in MAY_READ_ENVIRONMENT for finding in findings)


def test_tasks_are_registered() -> None:
    starting = {path: list(rules.task_findings(parsed(path), path)) for path in python_files("stager/")}
    assert_none(finding for path, findings in starting.items() if path not in rules.STARTS_TASKS for finding in findings)
    assert_none(f"tests/tidy_rules.py: {path} starts no task; leave it out" for path in rules.STARTS_TASKS if not starting[path])


def test_services_get_what_they_need_and_no_more() -> None:
    files = python_files("stager/service/")
    assert_none(chain.from_iterable(tidy_services.service_findings(parsed(path), module_name(path), is_package(path)) for path in files))
    modules = {module_name(path) for path in files}
    assert_none(f"tests/tidy_services.py: {module} is gone; leave it out" for module in sorted(tidy_services.COMPOSES - modules))


def test_contracts_say_what_passes() -> None:
    assert_none(chain.from_iterable(rules.typed_findings(parsed(path), path) for path in python_files(*CONTRACTS)))


def test_modules_say_what_they_are_for() -> None:
    files = python_files("stager/", "plugins/", "tests/testbed/", "workflows/")
    assert_none(chain.from_iterable(rules.docstring_findings(parsed(path), path) for path in files))


def test_names() -> None:
    assert_none(chain.from_iterable(rules.name_findings(path) for path in tracked()))


def test_words_that_were_given_up_do_not_come_back() -> None:
    endings = (".py", ".rs", ".sh", ".md", ".toml", ".yml", ".js", ".html", ".json", "Makefile", ".ci/run")
    files = [path for path in tracked() if path.endswith(endings) and not path.startswith(tidy_words.MAY_SAY_THEM)]
    assert_none(chain.from_iterable(tidy_words.word_findings(f"{text_of(path)}\n", path) for path in files))
    assert_none(chain.from_iterable(tidy_words.word_findings(path, "the name of a file") for path in files))


def test_pages_are_wrapped() -> None:
    """Decisions of the past stay as they were written, and evaluation.md holds rows of results that a program writes."""
    pages = [path for path in tracked() if path.endswith(".md") and not path.startswith(("docs/decisions/20", "CHANGELOG.md"))]
    assert_none(chain.from_iterable(tidy_words.width_findings(text_of(path), path) for path in pages))


def test_one_place_looks_for_data_beside_the_clone() -> None:
    """Elsewhere it soon makes a test that every other clone skips or fails."""
    knows, takes_away = "tests/testbed/places.py", "scripts/unit_alone.sh"
    words = [f"STAGER_{'SHARED'}", f'/ "{"shared"}"', f"..{'/shared/'}"]
    files = [path for path in tracked() if path.endswith((".py", ".sh", "Makefile", ".ci/run")) and path not in (knows, takes_away)]
    assert_none(f"{path}: {word} is for {knows} alone" for path in files for word in words if word in text_of(path))


def test_nothing_is_unfinished() -> None:
    endings = (".py", ".rs", ".sh", ".md", ".toml", ".yml", ".yaml", "Makefile", ".ci/run", ".js", ".html")
    assert_none(chain.from_iterable(rules.unfinished_findings(text_of(path), path) for path in tracked() if path.endswith(endings)))


def test_no_dead_modules() -> None:
    files = python_files("stager/")
    scripts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
    started = {target.split(":")[0] for target in scripts.values()} | {module_name(path) for path in files if path.endswith("/__main__.py")}
    packages = {module_name(path) for path in files if is_package(path)}
    assert_none(rules.dead_modules({module_name(path): parsed(path) for path in files}, started | set(CALLED_FROM_OUTSIDE), packages))


@pytest.mark.parametrize("place", PLUGINS)
def test_no_dead_modules_in_plugins(place: str) -> None:
    package, started = PLUGINS[place]
    files = python_files(place + package.replace(".", "/"))
    sources = {module_name(path.removeprefix(place)): parsed(path) for path in files}
    packages = {module_name(path.removeprefix(place)) for path in files if is_package(path)}
    assert sources
    assert_none(rules.dead_modules(sources, started, packages))


@pytest.mark.parametrize("place", ["", "plugins/airflow/", "plugins/pegasus/"])
def test_wheels_carry_the_licence(place: str) -> None:
    beside = PROJECT / place / "LICENSE"
    text = beside.read_bytes() if beside.is_file() else None
    assert_none(tidy_pages.licence_findings(text, text_of(f"{place}pyproject.toml"), f"{place}pyproject.toml"))


def test_decisions_have_a_status_and_are_listed() -> None:
    place = "docs/decisions/"
    pages = {path.removeprefix(place): text_of(path) for path in tracked() if path.startswith(place)}
    assert len(pages) > len(tidy_pages.BESIDE_DECISIONS)
    assert_none(tidy_pages.decision_findings(pages))
    assert_none(tidy_pages.index_findings(pages, pages["README.md"]))


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"])
def test_pages_about_the_code_name_what_is_there(page: str) -> None:
    def source(path: str) -> str | None:
        return text_of(path) if path in tracked() else None

    assert_none(tidy_pages.reference_findings(text_of(page), page, source))


def test_the_architecture_names_every_file_of_the_machine_and_every_crate() -> None:
    page = text_of("docs/architecture.md")
    files = [path.removeprefix("stager/scheduler/") for path in python_files("stager/scheduler/") if not is_package(path)]
    crates = [path.split("/")[1] for path in tracked() if path.startswith("ionode/") and path.endswith("/Cargo.toml")]
    assert len(files) > 20 and len(crates) > 5
    named = [name for name in files if not name.startswith("apply_")] + crates
    assert_none(f"docs/architecture.md: its table has no row for `{name}`" for name in named if f"`{name}`" not in page)


# Each rule must be able to fire, and must let pass what is right beside it.

Check = Callable[[str], Iterator[str]]


def layers(module: str) -> Check:
    return lambda source: rules.layer_findings(ast.parse(source), module)


def purity(module: str) -> Check:
    return lambda source: rules.purity_findings(ast.parse(source), module)


def sizes(source: str) -> Iterator[str]:
    return rules.size_findings(ast.parse(source), source, "x.py")


def manners(source: str) -> Iterator[str]:
    return rules.manner_findings(ast.parse(source), "x.py", may_print=False)


def environment(source: str) -> Iterator[str]:
    return rules.environment_findings(ast.parse(source), "x.py")


def plugin(source: str) -> Iterator[str]:
    return rules.plugin_findings(ast.parse(source), "plugins/x/y.py")


def tasks(source: str) -> Iterator[str]:
    return rules.task_findings(ast.parse(source), "x.py")


def typed(source: str) -> Iterator[str]:
    return rules.typed_findings(ast.parse(source), "x.py")


def docstring(source: str) -> Iterator[str]:
    return rules.docstring_findings(ast.parse(source), "x.py")


def rust(source: str) -> Iterator[str]:
    return rules.rust_findings(source, "x.rs")


def unfinished(source: str) -> Iterator[str]:
    return rules.unfinished_findings(source, "x.py")


def function_of(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


def class_of(methods: int) -> str:
    return "class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(methods))


def rust_function_of(lines: int) -> str:
    return "pub async fn f(\n    x: u8,\n) -> u8 {\n" + "    x();\n" * (lines - 4) + "}\n"


CASES: list[tuple[str, Check, str, str]] = [
    ("up a layer", layers("stager.model.files"), "from stager.planning import plan", "from stager.model import ids"),
    ("up two layers, plain import", layers("stager.planning.plan"), "import stager.ports", "import stager.model.files"),
    ("in a function", layers("stager.scheduler.state"), "def f():\n    import stager.driver", "def f():\n    import stager.planning.plan"),
    ("a neighbour", layers("stager.adapters.journal"), "from stager.readers.native import read", "from stager.ports import Journal"),
    (
        "a neighbour in the sixth layer",
        layers("stager.sim.world"),
        "from stager.runtime.world import LiveWorld",
        "from stager.adapters import journal",
    ),
    ("relative, out of the package", layers("stager.model.files"), "from ..planning import plan", "from . import ids"),
    ("the client beside the adapters", layers("stager.client"), "import stager.adapters.ionode", "from stager import wire"),
    ("the worker is small", layers("stager.worker.run"), "from stager.ports import World", "from stager.wire import Spec"),
    ("the worker from below", layers("stager.driver"), "from stager.worker.run import run", "from stager.ports import World"),
    ("an unknown package", layers("stager.attic.box"), "x = 1", ""),
    ("an unknown package imported", layers("stager.cli.main"), "import stager.attic", "import stager.service.app"),
    ("a plugin past the client", plugin, "from stager.model import ids", "from stager.client import Client"),
    ("a plugin past the errors", plugin, "import stager.model.workflow", "from stager.model.errors import Denied"),
    ("a plugin beside the bodies", plugin, "from stager import ports", "from stager import rest, wire"),
    ("a plugin and all of it", plugin, "def f():\n    import stager", "import stager.client"),
    ("clock", purity("stager.scheduler.machine"), "import time", "import heapq"),
    ("clock from datetime", purity("stager.model.x"), "from datetime import datetime", "from dataclasses import dataclass"),
    ("chance", purity("stager.planning.plan"), "import random", "import math"),
    ("files", purity("stager.planning.plan"), "from pathlib import Path", "from collections import deque"),
    ("environment in a pure package", purity("stager.planning.plan"), "import os", "import re"),
    ("open", purity("stager.model.x"), "open('x')", "x.open('x')"),
    ("hash", purity("stager.scheduler.x"), "k = hash('x')", "k = digest('x')"),
    ("order of a set", purity("stager.scheduler.x"), "for x in set(y): pass", "for x in sorted(set(y)): pass"),
    ("order of a set in a comprehension", purity("stager.scheduler.x"), "z = [x for x in {1, 2}]", "z = [x for x in (1, 2)]"),
    ("long function", sizes, function_of(61), function_of(60)),
    ("long file", sizes, "x = 1\n" * 501, "x = 1\n" * 499),
    ("broad class", sizes, class_of(21), class_of(20)),
    ("bare except", manners, "try:\n    f()\nexcept:\n    g()", "try:\n    f()\nexcept OSError:\n    g()"),
    ("swallowed", manners, "try:\n    f()\nexcept Exception:\n    pass", "try:\n    f()\nexcept Exception as e:\n    g(e)"),
    ("print", manners, "print(1)", "console.print(1)"),
    ("class without a noun", manners, "class BaseOrigin: ...", "class Database: ..."),
    ("os.environ", environment, "import os\nos.environ['X']", "import os\nos.getcwd()"),
    ("getenv", environment, "from os import getenv", "from os import getcwd"),
    ("a task that nobody keeps", tasks, "asyncio.create_task(f())", "tasks.start('f', f())"),
    ("a thread that nobody waits for", tasks, "loop.run_in_executor(None, f)", "async def g():\n    await loop.run_in_executor(None, f)"),
    ("anything in a contract", typed, "from typing import Any, Protocol", "from typing import Protocol"),
    ("anything in a contract, by its module", typed, "import typing\nx: typing.Any", "import typing\nx: typing.Protocol"),
    ("docstring", docstring, "x = 1", '"""What for."""'),
    ("unfinished", unfinished, "# TO" + "DO: more", "# to do is to be"),
    ("the place of a clone", rust, 'x(env!("CARGO_MANIFEST_DIR"))', 'x(env::var("CARGO_MANIFEST_DIR"), env!("CARGO_PKG_NAME"))'),
    ("long function in Rust", rust, rust_function_of(61), rust_function_of(60)),
    ("long file in Rust", rust, "x();\n" * 501, "x();\n" * 400 + "\n#[cfg(test)]\nmod tests {\n" + "x();\n" * 200),
]


@pytest.mark.parametrize(("check", "bad", "good"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_rule_fires(check: Check, bad: str, good: str) -> None:
    assert list(check(bad)), "the rule does not fire"
    if good:
        assert list(check(good)) == []


GIVEN_UP = (
    "class Courier: ...|fetchInstead = 1|def make_room(): ...|It was foretold.|pub struct Gather {|the pure rooms|class Entry:|LOOK_S = 1"
)


@pytest.mark.parametrize("line", GIVEN_UP.split("|"))
def test_word_rule_fires(line: str) -> None:
    assert list(tidy_words.word_findings(line, "x"))


IN_USE = "await asyncio.gather(x)|a tall tree|see overtaken-finals.md|there is room|in doubt|class Decision: ...|struct Entry {"


@pytest.mark.parametrize("line", IN_USE.split("|"))
def test_word_rule_lets_pass(line: str) -> None:
    assert not list(tidy_words.word_findings(line, "x"))


@pytest.mark.parametrize("page", [f"a {'x' * 99}", f"```\n```\na {'x' * 99}", f"- {'word ' * 20}end"])
def test_width_rule_fires(page: str) -> None:
    assert list(tidy_words.width_findings(page, "x"))


@pytest.mark.parametrize("page", [f"a {'x' * 98}", f"| {'x ' * 99}|", f"```\na {'x' * 99}\n```", f"- [{'x' * 99}](y)"])
def test_width_rule_lets_pass(page: str) -> None:
    assert not list(tidy_words.width_findings(page, "x"))


@pytest.mark.parametrize("path", ["stager/utils.py", "stager/helpers/x.py", "a/test_common.py", "a/base-origin.rs"])
def test_name_rule_fires(path: str) -> None:
    assert list(rules.name_findings(path))


@pytest.mark.parametrize("path", ["stager/database.py", "a/baseline.py", "rebase.md"])
def test_name_rule_lets_pass(path: str) -> None:
    assert not list(rules.name_findings(path))


def test_dead_module_rule_fires() -> None:
    sources = {
        "stager": "",
        "stager.cli.main": "from stager.model import files\n"
        "COMMANDS = ['stager.cli.plan:run', 'wait', 'look-on']\nload(f'stager.cli.{name}')",
        "stager.cli.plan": "from stager.model.ids import RunId",
        "stager.cli.wait": "",
        "stager.cli.look_on": "",
        "stager.cli.forgotten": "",
        "stager.model.files": "",
        "stager.model.ids": "",
        "stager.model.orphan": "from stager.model import orphan",
    }
    trees = {name: ast.parse(text) for name, text in sources.items()}
    dead = rules.dead_modules(trees, {"stager.cli.main"}, {"stager"})
    assert [line.split(":")[0] for line in dead] == ["stager.cli.forgotten", "stager.model.orphan"]


LICENSED = '[project]\nlicense = "Apache-2.0"\nlicense-files = ["LICENSE"]\n'


def test_licence_rule_fires() -> None:
    exact = (PROJECT / "LICENSE").read_bytes()
    assert not list(tidy_pages.licence_findings(exact, LICENSED, "x"))
    assert list(tidy_pages.licence_findings(None, LICENSED, "x"))
    assert list(tidy_pages.licence_findings(exact.replace(b"2004", b"2005"), LICENSED, "x"))
    assert list(tidy_pages.licence_findings(exact, LICENSED.replace("license-files", "#"), "x"))


OLD, NEW = "2026-01-01-old.md", "2026-01-02-new.md"
DECIDED = {
    OLD: f"# 2026-01-01 Old\n\n**Status:** superseded by\n[New]({NEW})\n\n**Decided**: so.\n",
    NEW: "# 2026-01-02 New\n\n**Status:** accepted\n\n**Decided**: else.\n",
    "template.md": "# YYYY-MM-DD Title\n",
}
INDEX = f"- 2026-01-01 [Old]({OLD}), superseded. It was\n  so.\n- 2026-01-02 [New]({NEW}), accepted. It is.\n"


def test_decision_rules_let_pass() -> None:
    assert not list(tidy_pages.decision_findings(DECIDED))
    assert not list(tidy_pages.index_findings(DECIDED, INDEX))
    in_part = DECIDED | {OLD: f"# 2026-01-01 Old\n\n**Status:** accepted, superseded in part by [New]({NEW}) (half of it)\n"}
    assert not list(tidy_pages.decision_findings(in_part))
    assert not list(tidy_pages.index_findings(in_part, INDEX.replace("superseded", "accepted, superseded in part")))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (NEW, "# 2026-01-02 New\n\n**Decided**: else.\n"),
        (NEW, "# 2026-01-02 New\n\n**Decided**: else.\n\n**Status:** accepted\n"),
        (NEW, "# 2026-01-02 New\n\n**Status:** perhaps\n"),
        (NEW, "# New\n\n**Status:** accepted\n"),
        (OLD, "# 2026-01-01 Old\n\n**Status:** superseded by [New](2026-01-02-gone.md)\n"),
        (OLD, "# 2026-01-01 Old\n\n**Status:** superseded by [itself](2026-01-01-old.md)\n"),
        (OLD, "# 2026-01-01 Old\n\n**Status:** superseded\n"),
        (OLD, "# 2026-01-01 Old\n\n**Status:** accepted, superseded in part by [New](2026-01-02-gone.md)\n"),
        ("notes.md", "# 2026-01-02 Notes\n\n**Status:** accepted\n"),
    ],
)
def test_decision_rule_fires(name: str, text: str) -> None:
    assert len(list(tidy_pages.decision_findings(DECIDED | {name: text}))) == 1


@pytest.mark.parametrize(
    "index",
    [
        INDEX.split("- 2026-01-02")[0],
        INDEX + INDEX.split("so.\n")[1],
        INDEX.replace("[New]", "[Newer]"),
        INDEX.replace("superseded", "accepted"),
        INDEX.replace(" It is.", ""),
        INDEX + "- 2026-01-03 [Gone](2026-01-03-gone.md), accepted. It is not.\n",
    ],
)
def test_index_rule_fires(index: str) -> None:
    assert list(tidy_pages.index_findings(DECIDED, index))


@pytest.mark.parametrize("reference", ["a/x.py", "a/x.py::f", "a/x.py::C", "a/x.rs::g", "a/x.py::TABLE", "python a/gone.py", "gone.py"])
def test_reference_rule_lets_pass(reference: str) -> None:
    assert not list(tidy_pages.reference_findings(f"see `{reference}`.", "p", SOURCES.get))


@pytest.mark.parametrize("reference", ["a/gone.py", "a/x.py::g", "a/x.rs::f", "a/x.py::use"])
def test_reference_rule_fires(reference: str) -> None:
    assert len(list(tidy_pages.reference_findings(f"see `{reference}`.", "p", SOURCES.get))) == 1


SOURCES = {
    "a/x.py": "class C:\n    async def f(self):\n        use(1)\nTABLE: dict = {}\n",
    "a/x.rs": "    pub(super) async fn g(x: u8) {}\n",
}
