"""The workflow supernovae: it finds what was injected and little else, and stager makes the same bytes as a serial run."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from stager.adapters.origin_access import IonodeOriginAccess
from stager.readers.native import read
from tests.e2e.serve_rig import Service
from tests.testbed.places import ionode_binary
from tests.testbed.serial_run import run_serially
from tests.testbed.stager import Stager
from tests.testbed.workflows import JOB_PATH, WORKFLOWS, copied_workflow

np = pytest.importorskip("numpy")
for needed in ("scipy", "sep", "PIL.Image"):
    pytest.importorskip(needed, reason=f"no {needed}: pip install 'stager[supernovae]'")

# One worker makes the exposures and runs the plain way once for all these tests.
pytestmark = [pytest.mark.xdist_group("supernovae"), pytest.mark.timeout(600)]
SAME_PLACE_PIXELS = 2.0


@pytest.fixture(scope="module")
def search() -> Iterator[SimpleNamespace]:
    """The workflow's modules; they stand outside the package, and import each other by their plain names."""
    added = [str(WORKFLOWS / "supernovae"), str(WORKFLOWS / "montage")]
    sys.path[:0] = added
    import field
    import fits
    import make_exposures
    import supernova_job

    yield SimpleNamespace(field=field, fits=fits, make=make_exposures, job=supernova_job)
    for path in added:
        sys.path.remove(path)


@pytest.fixture(scope="module")
def workflow_file(search: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("supernovae")
    search.make.write_survey(place / "demo-out" / "field", search.make.Survey(nights=2, references=2, size=320))
    return copied_workflow("supernovae", place)


@pytest.fixture(scope="module")
def finals(workflow_file: Path) -> Path:
    """What the workflow makes when it is run the plainest way."""
    place = workflow_file.parents[2]
    access = IonodeOriginAccess({"STAGER_IONODE": str(ionode_binary())})
    run_serially(read(workflow_file, access=access), place / "run", {"PATH": JOB_PATH}, to=place / "finals")
    return place / "finals"


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home", env={"PATH": JOB_PATH})
    yield program
    program.end()


def truth_of(field: Path) -> np.ndarray:
    return np.array([(entry["x"], entry["y"]) for entry in json.loads((field / "truth.json").read_text())]).reshape(-1, 2)


def found_in(transients: Path) -> np.ndarray:
    with transients.open(newline="") as file:
        return np.array([(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]).reshape(-1, 2)


def missed_and_false(truth: np.ndarray, found: np.ndarray) -> tuple[int, int]:
    """By distances between all; not the workflow's own score."""
    apart = np.hypot(truth[:, None, 0] - found[None, :, 0], truth[:, None, 1] - found[None, :, 1])
    return int((apart.min(axis=1, initial=1e9) > SAME_PLACE_PIXELS).sum()), int((apart.min(axis=0, initial=1e9) > SAME_PLACE_PIXELS).sum())


def searched(search: SimpleNamespace, place: Path) -> Path:
    """The steps one after the other in this process, over exposures in `place`; transients.csv."""
    job, exposures = search.job, place / "exposures"
    for name in ("aligned", "difference", "error", "candidates"):
        (place / name).mkdir()
    job.stars(exposures / "reference_000.fits", place / "stars.json")
    for path in sorted(exposures.glob("*.fits")):
        job.align(path, place / "stars.json", place / "aligned" / path.name)
    job.template(place / "template.fits", sorted((place / "aligned").glob("reference_*.fits")))
    for path in sorted((place / "aligned").glob("night_*.fits")):
        job.subtract(path, place / "template.fits", place / "difference" / path.name, place / "error" / path.name)
        job.detect(place / "difference" / path.name, place / "error" / path.name, place / "candidates" / f"{path.stem}.json")
    job.join(place / "transients.csv", sorted((place / "candidates").glob("*.json")))
    return place / "transients.csv"


@pytest.mark.slow
def test_stager_finds_what_was_injected_in_the_same_bytes_as_a_serial_run(stager: Stager, workflow_file: Path, finals: Path) -> None:
    field = workflow_file.parents[2] / "demo-out" / "field"
    done = stager.run("submit", workflow_file, deadline_s=500)
    assert "13 of 13 done, 0 failed, 13 attempts" in done.stdout
    assert "4 of 4 finals" in done.stdout
    truth = truth_of(field)
    assert len(truth) == 3
    assert missed_and_false(truth, found_in(field / "found" / "transients.csv")) == (0, 0)
    assert json.loads((field / "found" / "score.json").read_text()) == {"injected": 3, "found": 3, "false": 0, "missed": []}
    made = {path.name: path.read_bytes() for path in (field / "found").iterdir()}
    assert made == {path.name: path.read_bytes() for path in finals.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2026, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in (3, 11))])
def test_other_skies_give_up_their_transients_too(search: SimpleNamespace, tmp_path: Path, seed: int) -> None:
    """Nine injected among a hundred cosmic rays; of 15 skies that were looked at none had more than two false ones."""
    survey = search.make.Survey(seed=seed)
    search.make.write_survey(tmp_path, survey)
    transients = searched(search, tmp_path)
    truth = truth_of(tmp_path)
    candidates = sum(len(json.loads(path.read_text())) for path in (tmp_path / "candidates").glob("*.json"))
    assert len(truth) == 9 and candidates > 50, "cosmic rays must be there to be told apart"
    missed, false = missed_and_false(truth, found_in(transients))
    assert missed == 0 and false <= 2


@pytest.mark.slow
def test_a_sky_where_nothing_explodes_gives_nothing(search: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search.field, "explode", lambda *_: ())
    survey = search.make.Survey(nights=3, size=320)
    search.make.write_survey(tmp_path, survey)
    transients = searched(search, tmp_path)
    assert len(found_in(transients)) == 0
    search.job.score(tmp_path / "truth.json", transients, tmp_path / "score.json")
    assert json.loads((tmp_path / "score.json").read_text()) == {"injected": 0, "found": 0, "false": 0, "missed": []}


def test_stars_vanish_in_the_difference_of_two_exposures(search: SimpleNamespace, tmp_path: Path) -> None:
    """One is sharper and clearer; what is left where stars were is hardly more than where none was."""
    job, chance = search.job, np.random.default_rng(5)
    x, y, flux = chance.uniform(0, 256, 90), chance.uniform(0, 256, 90), chance.uniform(2000, 20_000, 90)
    for name, sigma, clear in (("sharp", 1.3, 0.8), ("soft", 2.0, 1.0)):
        image = chance.normal(0, 10, (256, 256))
        for star in zip(x, y, flux * clear, strict=True):
            search.field.add_blob(image, *star, sigma)
        job.write(tmp_path / f"{name}.fits", image, NOISE=10.0)
    for new, old in (("sharp", "soft"), ("soft", "sharp")):
        job.subtract(tmp_path / f"{new}.fits", tmp_path / f"{old}.fits", tmp_path / "d.fits", tmp_path / "e.fits")
        left, header = search.fits.read(tmp_path / "d.fits")
        before = search.fits.read(tmp_path / f"{new}.fits")[0]
        assert header["SCALE"] == pytest.approx({"sharp": 0.8, "soft": 1.25}[new], rel=0.02)
        assert abs(abs(header["BLUR"]) - (2.0**2 - 1.3**2)) < 0.15
        inner = np.isfinite(left)
        assert inner.sum() == (256 - 2 * job.EDGE_PIXELS) ** 2
        stars = inner & (before > 50)
        assert stars.sum() > 500 and np.abs(before[stars]).mean() > 100
        assert left[stars].std() < 1.15 * left[inner & ~stars].std()


def test_what_explodes_does_not_make_the_night_brighter(search: SimpleNamespace) -> None:
    chance = np.random.default_rng(6)
    old = chance.uniform(50, 2000, (60, 60))
    new = 0.8 * old + chance.normal(0, 10, old.shape)
    new[:5, :5] += 8000
    assert search.job.brightness(new, old, np.ones(old.shape, bool)) == pytest.approx(0.8, rel=0.005)


def test_turned_and_shifted_stars_are_found_again(search: SimpleNamespace) -> None:
    chance = np.random.default_rng(8)
    target = chance.uniform(0, 500, (60, 2))
    cos, sin = np.cos(0.008), np.sin(0.008)
    stars = target @ np.array([[cos, -sin], [sin, cos]]).T + [7.3, -5.1]
    # A third of them is not in both, and none is measured exactly.
    stars = np.concatenate([stars[:40], chance.uniform(0, 500, (20, 2))]) + chance.normal(0, 0.05, (60, 2))
    matrix, shift = search.job.similarity(target, stars, "here")
    assert np.hypot(*(target[:40] @ matrix.T + shift - stars[:40]).T).max() < 0.3
    with pytest.raises(SystemExit, match="cannot be aligned"):
        search.job.similarity(target[:8], chance.uniform(0, 5000, (8, 2)), "there")


def test_one_night_is_not_enough(search: SimpleNamespace, tmp_path: Path) -> None:
    def seen(x: float, y: float) -> dict[str, float]:
        return {"x": x, "y": y, "flux": 10.0, "sigma": 9.0}

    nights = {"night_0": [seen(5, 5), seen(50, 50), seen(51, 50)], "night_1": [seen(6, 5), seen(80, 9)], "night_2": [seen(5, 6)]}
    for name, said in nights.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(said))
    search.job.join(tmp_path / "t.csv", [tmp_path / f"{name}.json" for name in reversed(nights)])
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["x"], row["y"], row["nights"], row["first"]) for row in rows] == [("5", "5", "3", "night_0")]


def test_the_score_tells_missed_from_false(search: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_text(json.dumps([{"x": 10, "y": 10}, {"x": 30, "y": 30}]))
    (tmp_path / "t.csv").write_text("x,y\n11,10\n70,70\n71,70\n")
    search.job.score(tmp_path / "truth.json", tmp_path / "t.csv", tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text()) == {"injected": 2, "found": 1, "false": 2, "missed": [{"x": 30.0, "y": 30.0}]}


def test_the_same_seed_makes_the_same_exposures_and_what_is_there_stays(search: SimpleNamespace, tmp_path: Path) -> None:
    def made(name: str, **survey: int) -> dict[str, bytes]:
        paths = search.make.write_survey(tmp_path / name, search.make.Survey(**{"nights": 2, "references": 2, "size": 256} | survey))
        return {path.name: path.read_bytes() for path in paths}

    first = made("a", seed=1)
    was = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.fits")}
    assert made("b", seed=1) == first != made("c", seed=2)
    made("a", seed=1, nights=3)
    assert {path: path.stat().st_mtime_ns for path in was if path.name.startswith("reference")} == {
        path: time for path, time in was.items() if path.name.startswith("reference")
    }
    made("a", seed=1, references=1)
    assert sorted(path.name for path in (tmp_path / "a" / "exposures").iterdir()) == [
        "night_000.fits",
        "night_001.fits",
        "reference_000.fits",
    ]


@pytest.mark.parametrize("nights", [2, 3, 6, 30])
def test_what_explodes_is_bright_in_two_nights(search: SimpleNamespace, nights: int) -> None:
    for seed in range(40):
        curve = search.field.light_curve(np.random.default_rng(seed), nights)
        assert len(curve) == nights and sum(flux > 2000 for flux in curve) >= 2


@pytest.mark.parametrize("wrong", [{"size": 255}, {"nights": 1}, {"references": 0}, {"nights": 1001}])
def test_a_survey_that_cannot_be_searched_is_refused(search: SimpleNamespace, wrong: dict[str, int]) -> None:
    with pytest.raises(SystemExit, match="a search needs"):
        search.make.Survey(**wrong).check()


def test_a_service_makes_the_same_of_what_lies_beside_it(workflow_file: Path, finals: Path, session_dir: Path, tmp_path: Path) -> None:
    """Its exposures and programs are in three directories of the author's, and none is known to the service."""
    place = workflow_file.parents[2]
    for part in ("workflows", "demo-out"):
        shutil.copytree(place / part, tmp_path / part, ignore=shutil.ignore_patterns("found"))
    service = Service(session_dir / "sky", "[tenants.me]\nnative_jobs = true\n", env={"PATH": JOB_PATH})
    token = tmp_path / "token"
    token.write_text(service.token("me", "submit"))
    try:
        service.start()
        service.stager.run("submit", tmp_path / "workflows/supernovae/workflow.yml", "--server", service.url, "--token-file", token)
    finally:
        service.end()
    made = tmp_path / "demo-out" / "field" / "found"
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {
        path.name: path.read_bytes() for path in finals.rglob("*") if path.is_file()
    }
