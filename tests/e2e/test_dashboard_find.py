"""How a person finds one job of thousands and one run of many, and sees what is wrong, also with the service: in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.e2e.browser import PHONE, Browser, browser
from tests.e2e.dashboard_bed import Bed, chain, figure, flow, served, signed_in

MANY = 90


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    with served(session_dir / "dash-find") as found:
        yield found


@pytest.fixture(scope="module")
def window(bed: Bed, session_dir: Path) -> Iterator[Browser]:
    with browser(bed.service.url, session_dir / "profile-find") as found:
        yield found


@pytest.fixture
def seen(bed: Bed, window: Browser) -> Iterator[Browser]:
    with signed_in(bed, window) as found:
        yield found


@pytest.fixture(scope="module")
def failing(bed: Bed) -> str:
    """A run of many jobs, each of a type of its own, of which seven fail."""
    lines = [f"  fit_{n:03}: {{run: '{'exit 3' if n % 15 == 1 else 'true'}', outputs: []}}" for n in range(MANY)]
    lines += ["  sum: {type: last, run: 'true', outputs: []}"]
    return bed.ended(f"{flow(bed, 'failing', chr(10).join(lines))}\ndefaults: {{retries: 0}}\n")


def listed(seen: Browser, place: str) -> list[str]:
    return [each.text for each in seen.find(f"{place} tbody a")]


def address(seen: Browser) -> str:
    return str(seen.run("return location.hash"))


def test_a_job_is_found_by_a_part_of_its_name_and_the_address_says_so(bed: Bed, seen: Browser, failing: str) -> None:
    seen.go(f"#/runs/{failing}")
    seen.until(lambda: len(listed(seen, "#jobs")) == 6, "those that failed")
    seen.until(lambda: address(seen) == f"#/runs/{failing}", "the address that shows the same again")
    seen.press("/")
    assert seen.focused() == "jobs-find", "/ goes to where one looks for something"
    seen.press("FIT_08")
    seen.until(lambda: listed(seen, "#jobs") == [f"fit_08{n}" for n in range(10)], "those of that name, failed or not")
    seen.shows("10 jobs", "#jobs [role=status]")
    seen.until(lambda: address(seen) == f"#/runs/{failing}?find=FIT_08", "the address that shows the same again")
    seen.press("/")
    seen.shows("No such jobs.", "#jobs [role=status]")
    assert seen.one("#jobs-find").get_attribute("value") == "FIT_08/", "typed there it is a letter"
    seen.press(Keys.BACKSPACE)
    seen.one("#jobs-state").send_keys("failed")
    seen.until(lambda: address(seen).endswith("?find=FIT_08&state=failed"), "the state to stand in the address, too")
    # Who is given the address sees the same, and is led there.
    shared = address(seen)
    seen.go("#/runs")
    seen.shows("Runs", "h1")
    seen.go(shared)
    seen.until(lambda: seen.find("#jobs-find") and seen.one("#jobs-find").get_attribute("value") == "FIT_08", "what was looked for")
    seen.shows("No such jobs.", "#jobs [role=status]")
    top = "return document.getElementById('jobs-title').getBoundingClientRect().top"
    seen.until(lambda: 0 <= seen.run(top) < 200, f"the list to be in sight, not at {seen.run(top)}")
    seen.one("#jobs-state").send_keys("all states")
    seen.until(lambda: len(listed(seen, "#jobs")) == 10, "all of that name")
    seen.click("#jobs tbody a")
    seen.shows("fit_080", "h1")
    seen.driver.back()
    seen.until(lambda: len(listed(seen, "#jobs")) == 10, "a step back to lead to what was looked for")


def test_types_that_differ_by_a_number_only_are_one_box_which_finds_them(bed: Bed, seen: Browser, failing: str) -> None:
    seen.go(f"#/runs/{failing}")
    seen.until(lambda: len(seen.find(".box")) == MANY + 1, "each job")
    shape = """const answer = arguments[arguments.length - 1];
      import('/dashboard/graph.js').then(({ byType }) => {
        const types = Array.from({ length: 300 }, (_, at) => (at < 299 ? `a1_fit_${at}` : 'last'));
        const shown = types => byType(types.map((job_type, at) => ({ job: `j${at}`, job_type, depth: 0, parents: [] })));
        const said = shown(types).map(node => [node.label, node.type, node.named, node.jobs.length]);
        answer([said, shown(types.map((_, at) => 'x'.repeat(at))).map(node => node.jobs.length)]);
      })"""
    groups, unlike = seen.settle(shape)
    assert groups == [["a#_fit_#", "", "_fit_", 299], ["last", "last", "", 1]]
    assert len(unlike) == 80 and sum(unlike) == 300, "what cannot be told apart by a number is drawn as far as there is room"
    seen.resize(PHONE)
    seen.driver.refresh()
    seen.until(lambda: len(seen.find(".box")) == 2, "the types that differ by a number, and the other")
    seen.click('.box[data-name="fit_#"]')
    seen.until(lambda: seen.text("#jobs [role=status]") == f"50 of {MANY} jobs", "all of that name")
    seen.until(lambda: address(seen) == f"#/runs/{failing}?find=fit_", "the address that shows the same again")
    seen.click('.box[data-name="last"]')
    seen.until(lambda: listed(seen, "#jobs") == ["sum"], "those of that type")
    assert address(seen) == f"#/runs/{failing}?type=last" and seen.overflow() == 0


def test_runs_are_found_by_name_and_state_and_say_what_is_wrong_with_them(bed: Bed, seen: Browser, failing: str) -> None:
    others = [bed.ended(chain(bed, f"night {number}")) for number in (1, 2)]

    def row(run: str) -> Any:
        return next((each.text for each in seen.find("tbody tr") if each.text.startswith(run)), "")

    seen.until(lambda: "6 failed" in row(failing), "how many of its jobs failed")
    seen.until(lambda: row(others[0]) and "failed" not in row(others[0]), "nothing to be wrong with another")
    seen.press("/")
    seen.press("NIGHT")
    seen.until(lambda: listed(seen, "main") == others[::-1], "the runs of that name")
    seen.until(lambda: address(seen) == "#/runs?find=NIGHT", "the address that shows the same again")
    seen.one("#runs-state").send_keys("failed")
    seen.shows("No such runs.")
    seen.go("#/runs?state=failed")
    seen.until(lambda: listed(seen, "main") == [failing], "the runs that failed")
    assert seen.one("#runs-state").get_attribute("value") == "failed" and seen.find('#views [aria-current="page"]')[0].text == "Runs"


def test_runs_that_are_part_of_one_dagrun_are_one_line_that_leads_to_them(bed: Bed, seen: Browser) -> None:
    dag = "night/manual__2026-11-22T10:00:00+00:00 " + "w" * 90

    def begun(name: str) -> str:
        jobs = f"  look: {{inputs: {{a: 'data:in/a'}}, outputs: {{end: 'data:out/{name}'}}}}\n"
        text = flow(bed, name, jobs).replace("jobs:", "engine: airflow\njobs:", 1)
        answer = bed.client.post("/engine-runs", json={"workflow": text, "part_of": dag})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run"])

    first, second = begun("one"), begun("two")
    seen.go("#/runs?state=active")
    seen.until(lambda: listed(seen, "main") == [dag], "one line")
    assert "2 runs" in seen.text("main tbody tr") and "see its runs" in seen.text("main tbody tr")
    seen.click("main tbody a")
    seen.until(lambda: listed(seen, "main") == [second, first], "each of its runs")
    seen.shows(f"Runs of {dag}", "h1")
    seen.press("/")
    seen.press("two")
    seen.until(lambda: listed(seen, "main") == [second], "the one of that name")
    assert "part_of=night" in address(seen) and address(seen).endswith("find=two")
    seen.resize(PHONE)
    assert seen.overflow() == 0
    seen.click(".back a")
    seen.until(lambda: dag in listed(seen, "main") and first not in listed(seen, "main"), "one line again")
    assert seen.overflow() == 0
    for run in (first, second):
        bed.client.post(f"/runs/{run}/cancel").raise_for_status()


def test_a_run_of_many_failures_names_the_first_with_the_way_to_what_they_wrote(bed: Bed, seen: Browser, failing: str) -> None:
    seen.go(f"#/runs/{failing}")
    seen.until(lambda: len(seen.find(".alerts li")) == 6, "five of six, and how many more")
    seen.until(lambda: "1 more" in seen.find(".alerts li")[-1].text, "how many more")
    assert "6 failed" in seen.text('[data-figure="jobs"]')
    seen.click(".alerts a")
    seen.shows("fit_", "h1")
    seen.until(lambda: figure(seen, "exit") == "3", "its exit code")


def test_long_names_leave_neither_their_boxes_nor_the_page(bed: Bed, seen: Browser) -> None:
    job, kind = "W" * 90, "m" * 120
    run = bed.ended(flow(bed, "שלום " + "w" * 90, f"  {job}: {{type: {kind}, run: 'true', outputs: []}}\n"))
    seen.resize(PHONE)
    for path in ("#/runs", f"#/runs/{run}", f"#/runs/{run}/jobs/{job}", f"#/runs/{run}?find={job}&type={kind}"):
        seen.go(path)
        seen.shows("W" * 20 if path != "#/runs" else run)
        seen.until(lambda path=path: path.count("/") != 2 or seen.find("svg.timeline rect"), "the timeline and its key")
        assert seen.overflow() == 0, path
    seen.go(f"#/runs/{run}")
    clipped = "const box = document.querySelector('.box'); return getComputedStyle(box.querySelector('text').ownerSVGElement).overflow"
    assert seen.until(lambda: seen.find(".box") and seen.run(clipped), "its box") == "hidden"


def test_a_run_that_is_opened_while_the_service_is_away_is_shown_when_it_is_back(bed: Bed, seen: Browser) -> None:
    run = bed.ended(chain(bed, "opened"))
    seen.shows(run)
    port = bed.service.url.rpartition(":")[2]
    bed.service.kill()
    seen.go(f"#/runs/{run}")
    seen.shows("does not answer", "#trouble")
    bed.service.words = ("--listen", f"127.0.0.1:{port}")
    bed.service.start()
    seen.until(lambda: figure(seen, "jobs") == "3 of 3" and len(seen.find(".box.done")) == 3, "the run")
    seen.until(lambda: seen.find("svg.timeline rect") and not seen.find("#trouble")[0].is_displayed(), "the trouble to be over")


def test_a_timeline_of_ten_thousand_jobs_has_few_rows_and_says_what_it_leaves_out(bed: Bed, seen: Browser) -> None:
    draw = """const answer = arguments[arguments.length - 1];
      import('/dashboard/timeline.js').then(({ timelinePicture, placed }) => {
        const outcome = at => (at < 10 ? 'running' : at < 20 ? 'failed' : 'ok');
        // The longest are those that begin last; what runs and what failed is shorter than any of them.
        const span = (group, at) => ({ group, label: `${group} ${at}`, type: 'fit', begin: at / 1000,
          end: (at < 20 ? 15 : 20) + at, outcome: outcome(at) });
        const spans = count => ['jobs', 'fetches', 'uploads'].flatMap(group => Array.from({ length: count }, (_, at) => span(group, at)));
        const drawn = count => {
          const picture = timelinePicture();
          document.getElementById('main').replaceChildren(picture.element);
          picture.draw(spans(count), 10100);
          const rects = [...picture.element.querySelectorAll('rect')];
          const rows = new Set(rects.map(each => each.getAttribute('y'))).size;
          const jobs = rects.map(each => each.textContent).filter(each => each.startsWith('jobs'));
          return [rects.length, rows, jobs, picture.element.querySelector('.note').textContent];
        };
        const disjoint = Array.from({ length: 10000 }, (_, at) => ({ begin: at, end: at + 1, outcome: at === 3 ? 'failed' : 'ok' }));
        const [some, rows] = placed(disjoint);
        answer([drawn(10000), drawn(50), some.length, Math.max(...rows), some.some(each => each.outcome === 'failed')]);
      });"""
    (bars, rows, labels, said), few, some, last_row, failed_is_there = seen.settle(draw)
    assert bars == rows == 3 * 80
    wanted = {*range(20), *range(9940, 10_000)}
    assert {int(each.split(",")[0].split(" ")[1]) for each in labels} == wanted, "what runs, what failed, what took longest"
    assert said.startswith("Not drawn: 9,920 of 10,000 attempts of jobs, 9,920 of 10,000 fetches, 9,920 of 10,000 uploads; ")
    assert "in the list below" in said
    assert few[:2] == [150, 150] and few[3] == "", "of a small run all is drawn"
    assert (some, last_row, failed_is_there) == (1500, 0, True)


def test_a_list_that_cannot_be_had_says_why_and_what_to_do_until_it_is_there(bed: Bed, seen: Browser) -> None:
    run = bed.ended(chain(bed, "withheld"))
    seen.go(f"#/runs/{run}")
    seen.until(lambda: figure(seen, "cost").endswith("USD") and seen.find("#jobs tbody tr"), "all that is asked for without being opened")
    seen.run("""const real = fetch; window.answered = null; window.fetch = async (path, options) => {
      if (window.answered === null || !/\\/(files|jobs|cost)/.test(path)) return real(path, options);
      if (window.answered === 0) throw new TypeError('no line');
      if (window.answered === 200) return new Response(new ReadableStream({ start(body) {
        body.enqueue(new TextEncoder().encode('{"files": ['));
        body.error(new TypeError('network error')); } }));
      const headers = { 'Content-Type': 'application/problem+json' };
      return new Response(window.body, { status: window.answered, headers }); }""")
    defect = '{"detail": "GET /files failed by a defect of the service", "fix": "tell the administrator of the service"}'
    for status, body, said in (
        (500, defect, "GET /files failed by a defect of the service; tell the administrator of the service"),
        (503, '{"detail": "the scheduler starts; ask again in a moment", "fix": "ask again in a moment"}', "starts; ask again in a moment"),
        (502, "<h1>of a proxy</h1>", "the service answered 502; if it goes on doing so, tell its administrator"),
        (0, "", "the service does not answer; it is asked again"),
        (200, "", "the service does not answer; it is asked again"),
    ):
        seen.run("window.answered = arguments[0]; window.body = arguments[1]", status, body)
        seen.click('[data-standing="durable"] summary')
        seen.until(lambda said=said: seen.text('[data-standing="durable"] [role=alert]').endswith(said), f"{status} to be told")
        seen.one("#jobs-state").send_keys("done")
        seen.until(lambda said=said: seen.text("#jobs [role=alert]").endswith(said), f"{status} to be told of the jobs")
        seen.run("window.answered = null")
        seen.shows("data:out/withheld", '[data-standing="durable"] tbody')
        seen.until(lambda: not [each for each in seen.find("main [role=alert]") if each.is_displayed()], "nothing to be wrong any more")
        seen.click('[data-standing="durable"] summary')
        seen.one("#jobs-state").send_keys("all states")
    seen.run("window.answered = 401; window.body = '{}'")
    seen.click('[data-standing="durable"] summary')
    seen.shows("This token is not good", "#token-wrong")
    seen.run("window.answered = null")
    seen.driver.refresh()
