"""The dashboard of a real `stager serve`, in a real headless Chromium: what a person sees, and what a hostile name cannot do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from stager.service.dashboard import PATHS
from tests.e2e.browser import DESK, PHONE, Browser, browser
from tests.e2e.dashboard_bed import Bed, box, chain, figure, flow, served, signed_in
from tests.testbed.wheel import files_of_the_wheel

HOSTILE = '<img src=x onerror="window.taken=true">'


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    with served(session_dir / "dash") as found:
        yield found


@pytest.fixture(scope="module")
def window(bed: Bed, session_dir: Path) -> Iterator[Browser]:
    with browser(bed.service.url, session_dir / "profile") as found:
        yield found


@pytest.fixture
def seen(bed: Bed, window: Browser) -> Iterator[Browser]:
    with signed_in(bed, window) as found:
        yield found


# What is served, and to whom.


def test_the_files_need_no_token_and_what_a_tenant_has_does(bed: Bed) -> None:
    for path in sorted(PATHS):
        answer = bed.get(path)
        assert answer.status_code == 200, path
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'" and policy["frame-ancestors"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-cache"
        again = bed.get(path, **{"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert "://" not in answer.text.replace("http://www.w3.org/2000/svg", ""), f"{path} names another place"
    assert bed.get("/dashboard/../rest.py").status_code in (401, 404, 429)
    assert bed.get("/", Host="evil.example.org").status_code == 421
    told = bed.client.get("/runs")
    assert told.headers["cache-control"] == "private, no-cache" and told.headers["x-content-type-options"] == "nosniff"
    assert bed.client.get("/openapi.json").json()["paths"].keys().isdisjoint(PATHS)


def test_a_page_holds_no_script_and_no_style_of_its_own(bed: Bed) -> None:
    text = bed.get("/").text
    for part in text.split("<script")[1:]:
        assert " src=" in part.split(">")[0] and part.split(">", 1)[1].startswith("</script>")
    assert "<style" not in text and " style=" not in text and " on" not in text.replace(" one", "").replace(" only", "")


def test_the_files_travel_in_the_wheel() -> None:
    packed = files_of_the_wheel()
    assert {f"stager/service/dashboard/{Path(path).name or 'index.html'}" for path in PATHS if path != "/"} <= packed


def test_the_colours_of_two_pages_are_one_file(bed: Bed) -> None:
    """The report of a run, as `stager report --html` writes it, and the dashboard."""
    run = bed.ended(chain(bed, "coloured"))
    page = bed.data / "report.html"
    bed.service.stager.run("report", run, "--html", page)
    assert bed.get("/dashboard/palette.css").text in page.read_text()


# The token.


def test_a_token_is_asked_for_kept_for_the_tab_only_and_forgotten(bed: Bed, window: Browser) -> None:
    window.open("/")
    window.run("sessionStorage.clear(); location.hash = ''")
    window.driver.refresh()
    window.one("#token").send_keys("stg_wrong", Keys.ENTER)
    window.shows("This token is not good", "#token-wrong")
    assert window.run("return sessionStorage.length") == 0
    window.errors()
    window.one("#token").clear()
    window.one("#token").send_keys(bed.token, Keys.ENTER)
    window.shows("Runs", "h1")
    kept = "return JSON.stringify([Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href])"
    stored, local, cookie, address = json.loads(window.run(kept))
    assert stored == [bed.token] and bed.token not in str([local, cookie, address])
    window.one("#forget").click()
    window.one("#token")
    assert window.run("return sessionStorage.length") == 0
    window.driver.refresh()
    window.one("#token")
    assert window.errors() == []


def test_a_token_that_is_revoked_is_asked_for_again(bed: Bed, seen: Browser) -> None:
    made = bed.service.stager.json("token", "create", "--tenant", "alice")
    seen.click("#forget")
    seen.one("#token").send_keys(made["token"], Keys.ENTER)
    seen.one("#views")
    bed.service.stager.run("token", "revoke", made["id"])
    seen.shows("This token is not good", "#token-wrong")


# Runs.


def test_runs_are_listed_with_how_far_they_are_and_what_is_at_risk(bed: Bed, seen: Browser) -> None:
    run = bed.submit(chain(bed, "listed", gate="listed"))

    def row() -> str:
        return next((each.text for each in seen.find("tbody tr") if each.text.startswith(run)), "")

    seen.until(lambda: "1 of 3 jobs" in row() and "active" in row(), "the run to be listed with one job done")
    bed.gate("listed").touch()
    seen.until(lambda: "succeeded" in row() and "3 of 3 jobs" in row(), "its end to be told")
    seen.until(lambda: "600 kB" in row() and "nothing" in row(), "what it uploaded, and that nothing is at risk")
    seen.click(f'tbody a[href="#/runs/{run}"]')
    seen.shows(run, "h1")
    assert seen.focused() == run, "who goes on by keyboard or hears the page begins at its title"


def test_one_run_is_told_live_until_it_has_ended(bed: Bed, seen: Browser) -> None:
    run = bed.submit(chain(bed, "live", gate="live"))
    seen.go(f"#/runs/{run}")
    seen.until(lambda: "running" in box(seen, "second"), "the second job to run")
    assert "done" in box(seen, "first") and "waiting" in box(seen, "third")
    seen.shows("live", ".live")
    seen.until(lambda: figure(seen, "jobs") == "1 of 3", "its sums to say so, too")
    seen.until(lambda: seen.find("svg.timeline rect.running"), "the running job to stand in the timeline")
    asked = "return performance.getEntriesByType('resource').filter(each => each.name.endsWith('/events')).length"
    bed.gate("live").touch()
    seen.shows("succeeded", ".line .badge")
    seen.until(lambda: "done" in box(seen, "third"), "the last job to be done")
    seen.until(lambda: figure(seen, "finals") == "1 of 1" and figure(seen, "uploaded") == "600 kB", "the final to be durable")
    # It is told of when it has ended.
    assert seen.until(lambda: seen.run(asked), "its events to have ended") == 1, "one line, which nothing broke"
    seen.until(lambda: not seen.find("svg.timeline rect.running"), "the timeline to be the history's")
    lanes = {"jobs", "fetches", "uploads"}
    seen.until(lambda: {each.text for each in seen.find("svg.timeline text")} >= lanes, "what the timeline shows to be named")
    seen.until(lambda: figure(seen, "cost").endswith("USD"), "what it cost")
    cost = bed.client.get(f"/runs/{run}/cost").json()
    seen.until(lambda: len(seen.find("#cost tbody tr")) == len(cost["lines"]) + 1, "a line for each part of the cost, and the sum")
    seen.shows("at best", '[data-figure="hits"]')
    seen.shows(f"run {run}: succeeded", "#told")


def test_the_ledger_tells_what_is_safe_and_what_is_durable(bed: Bed, seen: Browser) -> None:
    run = bed.submit(chain(bed, "ledger", gate="ledger"))
    seen.go(f"#/runs/{run}")
    standings = seen.until(lambda: [each.get_attribute("data-standing") for each in seen.find(".standing")], "the ledger")
    assert standings == ["at_risk", "safe", "written", "durable", "superseded", "kept", "not_made"]
    seen.shows("1 file, 600 kB", '[data-standing="safe"] summary')
    seen.click('[data-standing="safe"] summary')
    seen.shows("mid", '[data-standing="safe"] tbody')
    bed.gate("ledger").touch()
    seen.shows("1 file, 600 kB", '[data-standing="durable"] summary')
    # The list above, which is open, becomes shorter after the sums have changed: a click in between would miss.
    seen.until(lambda: not seen.find('[data-standing="safe"] tbody tr'), "what was safe to have left its list")
    seen.click('[data-standing="durable"] summary')
    seen.shows("data:out/ledger", '[data-standing="durable"] tbody')


def test_a_failed_job_is_shown_with_its_fault_and_what_it_wrote(bed: Bed, seen: Browser) -> None:
    run = bed.ended(chain(bed, "broken", middle="echo no such star >&2; exit 3"))
    seen.go(f"#/runs/{run}")
    seen.shows("exit code 3", ".alerts")
    assert "failed" in box(seen, "second") and "skipped" in box(seen, "third")
    seen.shows("exit code 3", "#jobs tbody")
    seen.until(lambda: len(seen.find("#jobs tbody tr")) == 1, "those that failed only")
    seen.click("#jobs tbody a")
    seen.shows("no such star", ".logs pre")
    seen.until(lambda: "failed" in seen.text(".line .badge") and figure(seen, "exit") == "3", "its state and its exit code")


def test_a_run_is_cancelled_only_after_its_losses_were_named(bed: Bed, seen: Browser) -> None:
    run = bed.submit(chain(bed, "given up", gate="never"))
    seen.go(f"#/runs/{run}")
    seen.until(lambda: "running" in box(seen, "second"), "the second job to run")
    assert not seen.find("#sure:not([hidden])")
    seen.click("#cancel")
    seen.until(lambda: seen.focused() == "Keep it", "the harmless answer to be the first one")
    assert "600 kB in 1 file would be lost" in seen.text("#losses") and "mid" in seen.text("#losses li")
    assert "1 running job would be killed" in seen.text("#losses")
    seen.press(Keys.ENTER)
    seen.until(lambda: not seen.find("#sure:not([hidden])"), "the question to go")
    assert bed.client.get(f"/runs/{run}").json()["info"]["state"] == "active"
    seen.click("#cancel")
    seen.click("#cancel-yes")
    seen.shows("cancelled", ".line .badge")
    assert bed.client.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "cancelled"
    seen.until(lambda: not seen.find("#cancel:not([hidden])"), "nothing to be left to cancel")


def test_a_run_that_was_interrupted_is_resumed_and_who_may_only_read_is_told_so(bed: Bed, seen: Browser) -> None:
    run = bed.submit(chain(bed, "gone on", gate="gone-on"))
    seen.go(f"#/runs/{run}")
    seen.until(lambda: "running" in box(seen, "second"), "the second job to run")
    assert bed.client.post(f"/runs/{run}/stop").status_code == 200
    seen.shows("interrupted", ".line .badge")
    # A token that may only look gets no further than being told.
    reader, writer = bed.service.token("alice", "read"), "sessionStorage.setItem('stager-token', arguments[0])"
    seen.run(writer, reader)
    seen.click("#resume")
    seen.shows("scope", ".steering [role=alert]")
    seen.run(writer, bed.token)
    bed.gate("gone-on").touch()
    seen.click("#resume")
    seen.shows("succeeded", ".line .badge")


def test_a_run_of_somebody_else_is_not_there(bed: Bed, seen: Browser) -> None:
    run = bed.ended(chain(bed, "mine"))
    seen.click("#forget")
    seen.one("#token").send_keys(bed.service.token("bob", "read"), Keys.ENTER)
    seen.shows("There are no runs yet")
    seen.go(f"#/runs/{run}")
    seen.shows("Not found", "h1")


def test_names_are_text_and_never_html(bed: Bed, seen: Browser) -> None:
    run = bed.ended(chain(bed, HOSTILE, middle=f"cat mid > next; echo {json.dumps(HOSTILE)} >&2".replace("'", "''")))
    seen.shows(HOSTILE)
    for path, text in ((f"#/runs/{run}", HOSTILE), (f"#/runs/{run}/jobs/second", "<img src=x")):
        seen.go(path)
        seen.shows(text)
        assert seen.run("return document.querySelectorAll('main img').length") == 0
        assert seen.run("return window.taken ?? null") is None
    refused = "try { document.body.innerHTML = '<b>x</b>'; return 'written' } catch (problem) { return problem.name }"
    assert seen.run(refused) == "TypeError", "and if somebody forgot, the browser refuses it"
    assert all("TrustedHTML" in text for text in seen.errors())


# By keyboard, on a phone, in the dark.


def test_all_of_it_can_be_reached_by_keyboard(bed: Bed, seen: Browser) -> None:
    run = bed.ended(chain(bed, "keys"))
    seen.shows(run)
    seen.driver.refresh()
    seen.shows(run)
    order = []
    for _ in range(9):
        seen.press(Keys.TAB)
        order.append(seen.focused())
        width = seen.run("return parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 2, f"{order[-1]} has the focus, and nobody sees it"
    assert order[:6] == ["skip", "stager", "Runs", "Nodes", "theme", "forget"] and order[6:] == ["runs-find", "runs-state", run]
    seen.press(Keys.ENTER)
    seen.shows(run, "h1")
    box(seen, "first")
    seen.run("document.querySelector('.box[tabindex=\"0\"]').focus()")
    seen.press(Keys.ARROW_RIGHT)
    assert "second" in seen.run("return document.activeElement.getAttribute('aria-label')")
    seen.press(Keys.ENTER)
    seen.shows("second", "h1")
    seen.run("document.getElementById('skip').focus()")
    seen.press(Keys.ENTER)
    assert seen.run("return document.activeElement.id") == "main" and seen.run("return location.hash").endswith("/second")


def test_tables_pictures_and_controls_say_what_they_are(bed: Bed, seen: Browser) -> None:
    run = bed.ended(chain(bed, "told"))
    nameless = """const named = each => each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length || each.caption;
      const all = document.querySelectorAll('button, select, input, a, svg, progress, table');
      return [...all].filter(each => each.checkVisibility() && !named(each)).map(each => each.outerHTML)"""
    for path, text in (("#/runs", run), (f"#/runs/{run}", "Timeline"), ("#/nodes", "node0"), (f"#/runs/{run}/jobs/first", "Attempt")):
        seen.go(path)
        seen.shows(text)
        seen.until(lambda: seen.run("return document.querySelectorAll('h1').length") == 1, "one title")
        assert seen.run(nameless) == []
        assert (
            seen.run("return [...document.querySelectorAll('table')].filter(t => !t.caption || !t.querySelector('th[scope]')).length") == 0
        )
        assert seen.run("return document.documentElement.lang") == "en"


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_no_page_is_wider_than_the_screen(bed: Bed, seen: Browser, size: tuple[int, int]) -> None:
    wide = "  " + "\n  ".join(f"j{n}: {{run: 'true', outputs: []}}" for n in range(12)) + "\n"
    run = bed.ended(flow(bed, "w" * 60, wide))
    seen.resize(size)
    for path, text in (("#/runs", run), (f"#/runs/{run}", "Timeline"), ("#/nodes", "node0"), (f"#/runs/{run}/jobs/j0", "j0")):
        seen.go(path)
        seen.shows(text)
        assert seen.overflow() == 0, path
    seen.go(f"#/runs/{run}")
    seen.until(lambda: len(seen.find(".box")) == 12, "the graph")
    assert seen.overflow() == 0
    seen.click("#forget")
    seen.one("#token")
    assert seen.overflow() == 0


def test_colours_follow_the_system_until_a_person_chooses(bed: Bed, seen: Browser) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    try:
        seen.prefer(prefers_color_scheme="dark")
        dark = seen.run(paper)
        seen.prefer(prefers_color_scheme="light")
        light = seen.run(paper)
        assert dark != light == "rgb(255, 255, 255)"
        seen.one("#theme").send_keys("dark")
        seen.until(lambda: seen.run(paper) == dark, "the chosen colours")
        seen.driver.refresh()
        seen.one("#views")
        assert seen.run(paper) == dark and seen.run("return document.getElementById('theme').value") == "dark"
    finally:
        seen.prefer()
        seen.run("localStorage.clear()")


def test_nothing_moves_for_who_asked_for_less_motion(bed: Bed, seen: Browser) -> None:
    moving = """const dot = document.body.appendChild(document.createElement('span')); dot.className = 'live live';
      const name = getComputedStyle(dot, '::before').animationName; dot.remove(); return name"""
    try:
        seen.prefer(prefers_reduced_motion="no-preference")
        assert seen.run(moving) == "pulse"
        seen.prefer(prefers_reduced_motion="reduce")
        assert seen.run(moving) == "none"
    finally:
        seen.prefer()


# Large runs.


def test_ten_thousand_jobs_are_drawn_by_type_in_well_under_a_second(bed: Bed, seen: Browser) -> None:
    draw = """const answer = arguments[arguments.length - 1];
      import('/dashboard/graph.js').then(({ graphPicture }) => {
        const jobs = [];
        for (let at = 0; at < 10000; at += 1) {
          const layer = Math.floor(at / 2000);
          const parents = layer ? [at - 2000, at - 2000 + (at % 2000 ? -1 : 1)] : [];
          jobs.push({ job: `j${at}`, job_type: `type ${layer}`, depth: layer, parents });
        }
        const states = jobs.map((_, at) => at < 5000 ? 'done' : 'waiting');
        const begun = performance.now();
        const picture = graphPicture(jobs, () => {});
        document.getElementById('main').replaceChildren(picture.element);
        picture.draw();
        picture.update(states);
        picture.element.getBoundingClientRect();
        const drawn = performance.now();
        picture.update(states.map((state, at) => at < 6000 ? 'done' : state));
        picture.element.getBoundingClientRect();
        const texts = [...picture.element.querySelectorAll('.box')].map(each => each.getAttribute('aria-label'));
        answer([drawn - begun, performance.now() - drawn, texts]);
      });"""
    # The quickest of a few: how busy the machine is besides is not asked.
    tries = [seen.settle(draw) for _ in range(5)]
    drawn_ms, updated_ms, texts = min(each[0] for each in tries), min(each[1] for each in tries), tries[0][2]
    assert texts == [
        "type 0 2,000 of 2,000 jobs",
        "type 1 2,000 of 2,000 jobs",
        "type 2 2,000 of 2,000 jobs",
        "type 3 0 of 2,000 jobs; 2,000 waiting",
        "type 4 0 of 2,000 jobs; 2,000 waiting",
    ]
    print(f"10,000 jobs drawn in {drawn_ms:.0f} ms, brought up to date in {updated_ms:.0f} ms")
    assert drawn_ms < 500 and updated_ms < 200


def test_a_run_with_many_jobs_is_drawn_by_type_and_a_type_lists_its_jobs(bed: Bed, seen: Browser) -> None:
    lines = [f"  a{n}: {{type: first, run: 'echo {n} > f{n}', outputs: [f{n}]}}" for n in range(130)]
    lines += [f"  b{n}: {{type: second, run: 'cat f{n} > g{n}', inputs: [f{n}], outputs: [g{n}]}}" for n in range(3)]
    run = bed.submit(flow(bed, "many", "\n".join(lines) + "\n"))
    seen.go(f"#/runs/{run}")
    seen.until(lambda: len(seen.find(".box")) == 2, "two types")
    seen.until(lambda: "3 of 3 jobs" in (seen.one('.box[data-name="second"]').get_attribute("aria-label") or ""), "all to be done")
    seen.click('.box[data-name="second"]')
    seen.until(lambda: [each.text for each in seen.find("#jobs tbody a")] == ["b0", "b1", "b2"], "the jobs of that type")


# When the service goes away.


def test_a_page_goes_on_when_the_service_is_back(bed: Bed, seen: Browser) -> None:
    run = bed.submit(chain(bed, "away", gate="away"))
    seen.go(f"#/runs/{run}")
    seen.until(lambda: "running" in box(seen, "second"), "the second job to run")
    seen.until(lambda: seen.find("svg.timeline rect.running"), "its events to have come")
    seen.run("""const real = fetch; window.asked = []; window.fetch = (path, options) => {
      if (path.endsWith('/events')) window.asked.push(options.headers['Last-Event-ID'] ?? '');
      return real(path, options); }""")
    port = bed.service.url.rpartition(":")[2]
    bed.service.kill()
    seen.shows("does not answer", "#trouble")
    bed.service.words = ("--listen", f"127.0.0.1:{port}")
    bed.service.start()
    bed.gate("away").touch()
    seen.shows("succeeded", ".line .badge")
    again = seen.until(lambda: seen.run("return window.asked"), "the stream to be asked for again")
    assert all(number.isdecimal() for number in again), "the stream goes on where it broke"
    assert seen.text("h1") == run
    seen.until(lambda: not seen.find("#trouble")[0].is_displayed(), "the trouble to be over")
