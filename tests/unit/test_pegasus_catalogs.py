"""`stager pegasus catalogs`: what it prints, what it adds to catalogs that are there, and what it leaves alone."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from pegasus_stager import fallback, transfer_agent

from stager.adapters.kept_file import replace_kept
from stager.cli.main import stager
from stager.cli.pegasus import changed
from stager.model.errors import InvalidInput, Refused, StagerError, Transient
from stager.readers.pegasus_entries import NAMES, VARIABLES, transfer_sites
from tests.testbed.places import case_id, shared_files

PLUGIN = Path(fallback.__file__).parent
HERE, THERE = "/opt/stager/bin/stager-transfer", "/home/me/stager/bin/stager-transfer"
CATALOGS = (
    *("transformations.yml", "genome-transformations.yml", "diamond-allinone.yml"),
    *(place for place in shared_files("pegasus/*.yml") if "transformations" in place.stem or "allinone" in place.stem),
)
Sample = Callable[[str | Path], Path]
BOTH = ("--site", f"local={HERE}", "--site", f"condorpool={THERE}")
FALLBACK = ("--env", "condorpool:PEGASUS_TRANSFER_FALLBACK=/opt/pegasus/bin/pegasus-transfer")


def call(*words: object) -> Result:
    return CliRunner().invoke(stager, ["pegasus", "catalogs", *map(str, words)], catch_exceptions=True)


def done(*words: object) -> Result:
    result = call(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def error_of(*words: object) -> StagerError:
    result = call(*words)
    assert isinstance(result.exception, StagerError), (result.output, result.exception)
    assert "\n" not in result.exception.message
    return result.exception


@pytest.fixture
def sample(tmp_path: Path, pegasus_samples: Path) -> Sample:
    """A copy, alone in a directory, of a file that Pegasus.api wrote."""
    return lambda case: Path(shutil.copy(pegasus_samples / case, tmp_path))


def loaded(path: Path, inline: str) -> dict:
    top = yaml.safe_load(path.read_text())
    return top.get(inline, top)


def places_of(catalog: dict) -> dict[str, dict[str, tuple[str, str]]]:
    """As the planner looks them up: by name, then by site. The rules of the schema are asserted on the way."""
    found = {}
    for entry in catalog["transformations"]:
        assert set(entry) <= {"namespace", "name", "version", "requires", "sites", "profiles", "metadata", "hooks"}
        for site in entry["sites"]:
            assert {"name", "pfn", "type"} <= set(site) and site["type"] in ("installed", "stageable")
        name = "::".join(filter(None, (entry.get("namespace"), entry["name"])))
        assert name not in found, "Pegasus refuses an entry that is there twice"
        found[name] = {site["name"]: (site["pfn"], site["type"]) for site in entry["sites"]}
    return found


def only_added(before: str, after: str) -> list[str]:
    """Lines that came; none may have gone."""
    moves = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert not [line for line in moves if line[0] == "-"], moves
    return [line[2:] for line in moves]


def test_prints_a_transformation_catalog() -> None:
    catalog = yaml.safe_load(done(*BOTH).stdout)
    assert set(catalog) == {"pegasus", "transformations"} and catalog["pegasus"] == "5.0"
    wanted = {"local": (HERE, "installed"), "condorpool": (THERE, "installed")}
    assert places_of(catalog) == {f"pegasus::{name}": wanted for name in ("transfer", "cleanup", "dirmanager")}


def test_prints_entries_as_pegasus_itself_writes_them(sample: Sample) -> None:
    """The sample has one of them."""
    written = loaded(sample("transformations.yml"), "")["transformations"][-1]
    assert yaml.safe_load(done("--site", f"local={HERE}").stdout)["transformations"][0] == written


def test_prints_what_a_site_needs_as_a_second_document() -> None:
    transformations, sites = yaml.safe_load_all(done(*BOTH, *FALLBACK).stdout)
    assert len(transformations["transformations"]) == 3
    environ = {"PEGASUS_TRANSFER_FALLBACK": "/opt/pegasus/bin/pegasus-transfer"}
    assert sites == {"pegasus": "5.0", "sites": [{"name": "condorpool", "profiles": {"env": environ}}]}


@pytest.mark.parametrize("case", CATALOGS, ids=case_id)
def test_adds_to_a_real_catalog_and_leaves_the_rest(sample: Sample, case: str | Path) -> None:
    path = sample(case)
    before, was = path.read_bytes(), places_of(loaded(path, "transformationCatalog"))
    assert done(*BOTH, "--into", path).stdout == ""
    now = places_of(loaded(path, "transformationCatalog"))
    wanted = {"local": (HERE, "installed"), "condorpool": (THERE, "installed")}
    assert {name: now.pop(f"pegasus::{name}") for name in NAMES} == dict.fromkeys(NAMES, wanted)
    was.pop("pegasus::transfer", None)
    assert now == was
    only_added(before.decode(), path.read_text())
    assert path.with_name(f"{path.name}.old").read_bytes() == before


@pytest.mark.parametrize("case", [*CATALOGS, "sites.yml", *shared_files("pegasus/sites.yml")], ids=case_id)
def test_the_same_call_again_changes_nothing(sample: Sample, case: str | Path) -> None:
    path = sample(case)
    words = (*BOTH, *FALLBACK, "--sites" if path.name == "sites.yml" else "--into", path)
    done(*words)
    once, stat = path.read_bytes(), path.stat()
    assert "all of it is there" in done(*words).stderr
    assert path.read_bytes() == once and path.stat().st_ino == stat.st_ino
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.old"]


def test_adds_environment_to_a_real_site_catalog(tmp_path: Path, sample: Sample) -> None:
    path = sample("sites.yml")
    before = path.read_text()
    wanted = yaml.safe_load(before)
    done(*BOTH, *FALLBACK, "--env", "local:PEGASUS_TRANSFER_THREADS=4", "--env", "local:STAGER_IONODE=", "--sites", path)
    wanted["sites"][0]["profiles"] = {"env": {"PEGASUS_TRANSFER_THREADS": "4", "STAGER_IONODE": ""}}
    wanted["sites"][1]["profiles"]["env"] = {"PEGASUS_TRANSFER_FALLBACK": "/opt/pegasus/bin/pegasus-transfer"}
    assert yaml.safe_load(path.read_text()) == wanted
    only_added(before, path.read_text())


def test_both_catalogs_in_one_workflow(tmp_path: Path, sample: Sample) -> None:
    path = sample("diamond-allinone.yml")
    wanted = yaml.safe_load(path.read_text())
    (tmp_path / "again").mkdir()
    assert done(*BOTH, *FALLBACK, "--into", path, "--sites", tmp_path / "again" / ".." / path.name).stdout == ""
    (tmp_path / "again").rmdir()
    now = yaml.safe_load(path.read_text())
    assert places_of(now["transformationCatalog"])["pegasus::cleanup"]["condorpool"] == (THERE, "installed")
    environ = now["siteCatalog"]["sites"][1]["profiles"].pop("env")
    assert environ == {"PEGASUS_TRANSFER_FALLBACK": "/opt/pegasus/bin/pegasus-transfer"}
    wanted.pop("transformationCatalog")
    now.pop("transformationCatalog")
    assert now == wanted and sorted(os.listdir(tmp_path)) == ["diamond-allinone.yml", "diamond-allinone.yml.old"]


def test_an_entry_that_says_something_else_is_refused_by_name(tmp_path: Path, sample: Sample) -> None:
    path = sample("transformations.yml")
    before = path.read_bytes()
    error = error_of("--site", f"local={THERE}", "--into", path)
    assert (
        isinstance(error, Refused) and f"pegasus::transfer at site local has pfn {HERE}" in error.message and "--replace" in error.message
    )
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["transformations.yml"]
    done("--site", f"local={THERE}", "--into", path, "--replace")
    assert places_of(loaded(path, ""))["pegasus::transfer"] == {"local": (THERE, "installed")}
    gone = [line for line in difflib.ndiff(before.decode().splitlines(), path.read_text().splitlines()) if line[0] == "-"]
    assert gone == [f"-     pfn: {HERE}"]


def test_a_variable_that_says_something_else_is_refused_before_any_file_is_written(tmp_path: Path, sample: Sample) -> None:
    sites, into = sample("sites.yml"), sample("transformations.yml")
    done(*BOTH, *FALLBACK, "--sites", sites)
    before = into.read_bytes()
    words = (*BOTH, "--env", "condorpool:PEGASUS_TRANSFER_FALLBACK=", "--into", into, "--sites", sites)
    assert re.search("PEGASUS_TRANSFER_FALLBACK of site condorpool is '/opt/pegasus/bin/peg", error_of(*words).message)
    assert into.read_bytes() == before
    done(*words, "--replace")
    assert yaml.safe_load(sites.read_text())["sites"][1]["profiles"]["env"] == {"PEGASUS_TRANSFER_FALLBACK": ""}


LAYOUTS = {
    "comments": "pegasus: '5.0'  # ours\n# before\ntransformations:\n  - name: a   # first\n    sites:\n"
    "      - {name: local, pfn: /a, type: installed}  # its place\n    # of a\n# the end\n",
    "one line each": "pegasus: '5.0'\ntransformations:\n"
    "  - {namespace: pegasus, name: transfer, sites: [{name: far, pfn: /x, type: installed}]}  # far\n  - {name: é𝄞, sites: []}\n",
    "trailing comma": "{pegasus: '5.0', transformations: [{namespace: pegasus, name: cleanup, sites: [], }, ], }",
    "no list yet": "pegasus: '5.0'",
    "an empty list": "---\npegasus: '5.0'\ntransformations: []\nx-mine: |+\n  text\n\n\n",
    "nothing": "pegasus: '5.0'\ntransformations:\nx-mine: 1\n...\n",
    "line ends of Windows": "pegasus: '5.0'\r\ntransformations:\r\n- name: a\r\n  sites: # one\r\n"
    "  - name: local\r\n    pfn: /a\r\n    type: installed\r\n",
    "text at the end": "pegasus: '5.0'\ntransformations:\n- name: a\n  sites: []\n  metadata:\n    about: |\n      two\n      lines\n",
    "text before another key": "pegasus: '5.0'\ntransformations:\n- name: a\n  sites: []\n  metadata:\n    about: |\n      two\n"
    "      lines\nx-mine: 1\n",
    "a version of its own": "pegasus: '5.0'\ntransformations:\n- {namespace: pegasus, name: transfer, version: '2', sites: []}\n",
    "a mark before": "\ufeffpegasus: '5.0'\ntransformations:\n- {name: a, sites: []}\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_however_a_catalog_is_laid_out(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "tc.yml"
    path.write_bytes(LAYOUTS[layout].encode())
    done(*BOTH, "--into", path)
    after = path.read_bytes().decode()
    catalog = yaml.safe_load(after)
    versioned = [entry for entry in catalog["transformations"] if "version" in entry]
    catalog["transformations"] = [entry for entry in catalog["transformations"] if entry not in versioned]
    assert versioned == [entry for entry in yaml.safe_load(LAYOUTS[layout]).get("transformations") or () if "version" in entry]
    found = places_of(catalog)
    for name in NAMES:
        assert found[f"pegasus::{name}"]["condorpool"] == (THERE, "installed")
    matched = difflib.SequenceMatcher(None, LAYOUTS[layout], after, autojunk=False).get_opcodes()
    assert {kind for kind, *_ in matched} <= {"equal", "insert"}
    assert after.count("\r\n") == (after.count("\n") if layout == "line ends of Windows" else 0)
    once = path.read_bytes()
    done(*BOTH, "--into", path)
    assert path.read_bytes() == once


@pytest.mark.parametrize("places", ["\n- {name: far, pfn: /x, type: installed}", " [{name: far, pfn: /x, type: installed}]"])
def test_what_text_cannot_be_added_to_is_refused(tmp_path: Path, places: str) -> None:
    """Two entries that share a list: one of them cannot get a member alone."""
    path = tmp_path / "tc.yml"
    text = (
        f"pegasus: '5.0'\nx-places: &places{places}\ntransformations:\n"
        "- {namespace: pegasus, name: transfer, sites: *places}\n- {name: other, sites: *places}\n"
    )
    path.write_text(text)
    assert "print the entries and paste them" in error_of(*BOTH, "--into", path).message
    assert path.read_text() == text and os.listdir(tmp_path) == ["tc.yml"]


WRONG = {
    "a site without a path": (("--site", "condorpool"), "say where stager-transfer is there"),
    "a relative path": (("--site", "local=bin/stager-transfer"), "not the absolute path"),
    "a path with a space": (("--site", "local=/opt/my tools/stager-transfer"), "without quotes, so it cannot hold ' '"),
    "no name": (("--site", "=/x"), "is no name of a site"),
    "two paths": (("--site", "local=/x", "--site", "local=/y"), "local has two paths, /x and /y"),
    "a variable of nobody": (("--site", "local=/x", "--env", "local:STAGER_IONOD=/x"), "did you mean 'STAGER_IONODE'"),
    "a variable of no site": (("--site", "local=/x", "--env", "locl:STAGER_IONODE=/x"), "did you mean 'local'"),
    "a variable without a site": (("--site", "local=/x", "--env", "STAGER_IONODE=/x"), "write SITE:NAME=VALUE"),
    "no number": (("--site", "local=/x", "--env", "local:PEGASUS_TRANSFER_THREADS=many"), "a number from 1 to 1024"),
    "no such file": (("--site", "local=/x", "--into", "gone.yml"), "gone.yml: there is no such file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words_are_told(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, told = WRONG[case]
    error = error_of(*words)
    assert isinstance(error, InvalidInput) and told in error.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pegasus: '5.0'\nsites: []\n", "is no transformation catalog: it has sites"),
        ("pegasus: '5.0'\njobs: []\n", "no transformationCatalog in it; name the catalog that it is planned with"),
        ('tr a::b { site local { pfn "/x" } }\n', "is no transformation catalog of Pegasus 5"),
        ("", "has no key 'pegasus'"),
        ("# nothing yet\n", "has no key 'pegasus'"),
        ("pegasus: '5.0'\ntransformations: {a: b}\n", "transformations: must be a list of mappings"),
        ("pegasus: '5.0'\ntransformations: [\n", "this is not YAML"),
    ],
)
def test_files_that_are_no_catalog_are_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "tc.yml"
    path.write_text(text)
    assert told in error_of(*BOTH, "--into", path).message
    assert path.read_text() == text


def test_a_site_that_the_site_catalog_does_not_have_is_told(tmp_path: Path, sample: Sample) -> None:
    path = sample("sites.yml")
    assert "has no site 'condorpol'; did you mean 'condorpool'" in error_of("--site", "condorpol=/x", "--sites", path).message
    path.write_text("pegasus: '5.0'\nsites: []\n")
    done("--site", "local=/x", "--sites", path)
    assert "write it there" in error_of("--site", "local=/x", "--env", "local:STAGER_IONODE=/y", "--sites", path).message


def test_without_a_path_local_has_the_program_beside_this_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"there is no stager-transfer in {tmp_path}; install"):
        transfer_sites((), (), [tmp_path])
    (tmp_path / "stager-transfer").touch()
    (site,) = transfer_sites((), (), [tmp_path / "gone", tmp_path])
    assert (site.name, site.program) == ("local", str(tmp_path / "stager-transfer"))


def test_the_variables_are_those_that_stager_transfer_reads() -> None:
    source = "".join(path.read_text() for path in PLUGIN.glob("*.py"))
    own = set(re.findall(r'"((?:STAGER|PEGASUS_TRANSFER)_[A-Z_]+)"', source))
    not_settings = {"STAGER_TRANSFER_CALLED", "PEGASUS_TRANSFER_ERROR_RATE"}
    assert set(VARIABLES) == own - not_settings
    assert {transfer_agent.VARIABLE, fallback.VARIABLE} <= set(VARIABLES)


def test_a_file_that_changed_meanwhile_is_not_written_over(tmp_path: Path, sample: Sample) -> None:
    path = sample("transformations.yml")
    ((_, (old, new)),) = changed(path, None, transfer_sites(("local=" + HERE,), (), []), False).items()
    path.write_text(old + "# theirs\n")
    with pytest.raises(Transient, match="changed by somebody else"):
        replace_kept(path, old, new)
    assert path.read_text() == old + "# theirs\n" and os.listdir(tmp_path) == [path.name]


def test_a_link_mode_and_older_copies_stay(tmp_path: Path, sample: Sample) -> None:
    path = sample("transformations.yml")
    original = path.read_bytes()
    path.chmod(0o640)
    link = tmp_path / "tc.yml"
    link.symlink_to(path.name)
    done("--site", f"local={HERE}", "--into", link)
    done(*BOTH, "--into", link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "transformations.yml.old").read_bytes() == original
    assert places_of(loaded(tmp_path / "transformations.yml.old2", ""))["pegasus::cleanup"] == {"local": (HERE, "installed")}


def test_as_a_program(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "stager.cli", "pegasus", "catalogs", "--site", "condorpool"]
    ended = subprocess.run(argv, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr == "stager: --site condorpool: say where stager-transfer is there: --site condorpool=/PATH/bin/stager-transfer\n"
