// One run: how far it is, what is wrong, its graph, what went on when, its ledger and its jobs. Told anew whenever an event says that
// something happened, and now and then besides: how many bytes are on their way is no event.

import { follow, get, name, Problem } from "./api.js";
import { controlsPart } from "./controls.js";
import { badge, el, figures, say, section, setBadge, show } from "./dom.js";
import { count, duration, money, percent, rate, roughly, size, when, words } from "./format.js";
import { graphPicture } from "./graph.js";
import { jobsPart } from "./jobs.js";
import { asked, poll, sparingly } from "./keeping.js";
import { atRisk, ledgerPart, unsafeFiles } from "./ledger.js";
import { GOES_ON } from "./runs.js";
import { Spans, timelinePicture } from "./timeline.js";

const EVERY_MS = 2000;
const SELDOM_MS = 1000;
const COST_MS = 5000;
const TROUBLES_MAX = 5;
// The service tells of so many at most (views.py).
const TROUBLES_TOLD = 15;
const FIGURES = [["jobs", "Jobs done"], ["time", "Time"], ["fetched", "Fetched"], ["uploaded", "Uploaded"], ["risk", "At risk now"], ["hits", "Hit rate"], ["finals", "Finals durable"], ["cost", "Cost so far"]];

function fillFigures(facts, status, best) {
  const { info } = status;
  const goesOn = GOES_ON.includes(info.state);
  const took = info.took_s;
  const failed = status.jobs.failed ? `${status.jobs.failed.toLocaleString("en")} failed` : "";
  // How long an origin will be away nobody can guess.
  const guessed = goesOn && status.eta_s !== null && status.waiting.length === 0;
  const assumed = goesOn && status.jobs_assumed ? `${status.jobs_assumed.toLocaleString("en")} assumed` : "";
  facts.set("jobs", `${info.jobs_done.toLocaleString("en")} of ${info.jobs_total.toLocaleString("en")}`, failed || assumed || (status.jobs.running ? `${status.jobs.running} running` : info.jobs_reused ? `${info.jobs_reused.toLocaleString("en")} reused` : ""));
  facts.set("time", guessed ? `${roughly(status.eta_s)} left` : duration(took), goesOn ? `begun ${when(info.submitted_at)}${status.waiting.length ? "; it waits" : ""}` : `ended ${when(info.finished_at)}`);
  facts.set("fetched", size(status.fetched_bytes), goesOn ? `of ${size(status.fetch_bytes_planned)}, ${rate(status.fetch_bytes_per_s)}` : "");
  facts.set("uploaded", size(status.uploaded_bytes), goesOn ? `${status.upload_bytes_guessed ? "so far" : `of ${size(status.upload_bytes_planned)}`}, ${rate(status.upload_bytes_per_s)}` : "");
  facts.set("risk", atRisk(status), unsafeFiles(status));
  facts.set("hits", percent(status.hit_rate), status.hit_rate === null ? "nothing was read" : best !== null ? `of the bytes handed to jobs; ${percent(best)} at best` : "of the bytes handed to jobs");
  facts.set("finals", `${status.finals_durable.toLocaleString("en")} of ${status.finals_total.toLocaleString("en")}`);
  facts.element.querySelector('[data-figure="jobs"]').classList.toggle("failing", failed !== "");
  facts.element.querySelector('[data-figure="risk"]').classList.toggle("risky", status.ledger.at_risk.files > 0);
}

// What is wrong, each with the way to what its job wrote; the first of many, since the ledger comes below.
function troubles(run) {
  const list = el("ul", { class: "alerts", "aria-label": "Problems" });
  let shown = "";
  return {
    element: list,
    // `names`: of the jobs of the run, once they are known.
    set(status, names) {
      const waits = status.waiting.map((each) => ({ text: each.message, job: "" }));
      const faults = status.problems.map((fault) => {
        const ofJob = names.has(fault.subject) && fault.message.includes(`'${fault.subject}'`);
        return { text: `${words(fault.code)}: ${fault.message}`, job: ofJob ? fault.subject : "" };
      });
      const found = [...waits, ...faults];
      const key = JSON.stringify(found);
      if (key === shown) return;
      shown = key;
      const left = found.length - TROUBLES_MAX;
      show(list, found.length > 0);
      list.replaceChildren(...found.slice(0, TROUBLES_MAX).map(({ text, job }) =>
        el("li", {}, text, job ? [" ", el("a", { href: `#/runs/${name(run)}/jobs/${name(job)}` }, "its output", el("span", { class: "hush" }, `: ${job}`))] : null)),
      ...(left > 0 ? [el("li", {}, `and ${left < TROUBLES_TOLD ? left : "many"} more; the list of jobs below has all that failed`)] : []));
    },
  };
}

function bill() {
  const rows = el("tbody", {});
  const note = el("p", { class: "note" }, "…");
  const head = el("tr", {}, el("th", { scope: "col" }, "What"), el("th", { scope: "col", class: "number" }, "Money"));
  const element = el("div", {}, el("table", { class: "plain costs" }, el("caption", { class: "hush" }, "Cost so far"), el("thead", {}, head), rows), note);
  return {
    element,
    set(found) {
      const lines = [...found.lines.map((line) => [line.name, line.amount, ""]), ["in total", found.total, "total"]];
      rows.replaceChildren(...lines.map(([name, amount, kind]) => el("tr", { class: kind }, el("th", { scope: "row" }, name), el("td", { class: "number" }, money(amount, found.currency)))));
      const missing = found.missing.length ? ` There is no price of ${found.missing.join(", ")}, which is left out.` : "";
      say(note, `${count(found.nodes, "node")} as ${found.instance} for ${duration(found.wall_s)}, by prices of ${found.prices_date}.${missing}`);
    },
  };
}

class RunPage {
  constructor(place, run, signal, page) {
    Object.assign(this, { run, signal, page, status: null, states: [], graph: null, spans: null, best: null });
    this.state = badge("active");
    this.line = el("span", { class: "live", role: "status" });
    // Names may run from right to left.
    this.workflow = el("bdi", {});
    this.facts = figures(FIGURES);
    this.names = [];
    this.known = new Set();
    this.troubles = troubles(run);
    this.controls = controlsPart(run, signal, () => this.loadStatus());
    this.graphRoom = el("div", {}, el("p", { class: "note" }, "…"));
    this.timeline = timelinePicture();
    this.ledger = ledgerPart(run, signal, page);
    this.jobs = jobsPart(run, signal, page);
    this.bill = bill();
    place.replaceChildren(
      el("p", { class: "back" }, el("a", { href: "#/runs" }, "All runs")),
      el("div", { class: "line" }, el("h1", {}, run), this.state, this.line), el("p", { class: "note" }, "workflow ", this.workflow), this.controls.element,
      this.facts.element, this.troubles.element,
      section("ledger", "Ledger", this.ledger.element),
      section("graph", "Graph", this.graphRoom),
      section("timeline", "Timeline", this.timeline.element),
      section("cost", "Cost so far", this.bill.element),
      section("jobs", "Jobs", this.jobs.element));
    this.path = `/runs/${name(run)}`;
    this.happened = sparingly(SELDOM_MS, signal, () => this.reload());
    this.costs = sparingly(COST_MS, signal, () => this.loadCost());
    this.costing = asked(page, signal, this.costs);
    document.getElementById("cost").append(this.costing.element);
  }

  get goesOn() {
    return GOES_ON.includes(this.status.info.state);
  }

  // What only the journal tells is gone of a run that was folded away, and the rest is still there.
  async kept(path) {
    try {
      return await get(this.path + path, this.signal);
    } catch (problem) {
      if (problem instanceof Problem && problem.code === "run_folded") return null;
      throw problem;
    }
  }

  async begin() {
    await this.loadStatus();
    const found = await this.kept("/graph");
    if (found === null) {
      for (const id of ["graph", "timeline", "jobs", "cost"]) {
        document.getElementById(id).replaceChildren(document.getElementById(`${id}-title`), el("p", { class: "note" }, "No longer kept: the journal of this run was folded away."));
      }
      return this.ledger.refresh();
    }
    window.addEventListener("resize", () => this.graph.turned(), { signal: this.signal });
    this.types = new Map();
    this.spans = new Spans(this.status.info.submitted_at, (job) => this.types.get(job) ?? "");
    this.drawGraph(found);
    await this.loadParts();
    this.lead(this.goesOn);
    return undefined;
  }

  drawGraph(found) {
    this.graph = graphPicture(found.jobs, (node, collapsed) => this.choose(node, collapsed), this.graph);
    this.version = found.version;
    this.graphRoom.replaceChildren(this.graph.element);
    this.graph.draw();
    this.names = found.jobs.map((job) => job.job);
    this.known = new Set(this.names);
    this.troubles.set(this.status, this.known);
    for (const job of found.jobs) this.types.set(job.job, job.job_type);
  }

  // Who came by an address that looks for jobs is led to them.
  lead(forGood) {
    const list = document.getElementById("jobs");
    if (this.jobs.touched && !this.led) {
      // As high as the screen: what is filled in above it later does not push it away again.
      list.classList.add("led");
      list.scrollIntoView();
    }
    this.led ||= forGood;
  }

  choose(node, collapsed) {
    if (!collapsed) location.hash = `#/runs/${name(this.run)}/jobs/${name(this.names[node.jobs[0]])}`;
    else if (node.named) this.jobs.ofName(node.named);
    else if (node.type) this.jobs.ofType(node.type);
  }

  async loadStatus() {
    const before = this.status?.info.state;
    this.status = await get(this.path, this.signal);
    const { info } = this.status;
    setBadge(this.state, info.state);
    this.controls.set(info.state);
    say(this.workflow, info.workflow);
    fillFigures(this.facts, this.status, this.goesOn ? null : this.best);
    this.troubles.set(this.status, this.known);
    this.ledger.totals(this.status);
    this.jobs.totals(this.status);
    if (before !== undefined && before !== info.state) this.page.tell(`run ${this.run}: ${words(info.state)}`);
  }

  async loadParts() {
    const [found] = await Promise.all([get(`${this.path}/states`, this.signal), this.ledger.refresh(), this.jobs.refresh()]);
    // Jobs were made of members that are known now, or the run was resumed with another file. The next states are of these.
    if (found.version !== this.version) this.drawGraph(await get(`${this.path}/graph`, this.signal));
    if (found.version === this.version) this.graph.update(found.states);
    if (this.goesOn) {
      const nowS = this.status.info.took_s;
      this.timeline.draw(this.spans.all(nowS), nowS, this.gap ? "The first events are no longer kept. The whole timeline is there when the run has ended." : "");
    }
  }

  async reload() {
    await this.loadStatus();
    if (this.graph !== null) await this.loadParts();
  }

  async loadCost() {
    const found = await this.kept("/cost");
    if (found === null) return this.facts.set("cost", "—", "no longer kept");
    this.bill.set(found);
    const limit = this.status.budget;
    if (limit === null) return this.facts.set("cost", money(found.total, found.currency), `${count(found.nodes, "node")} as ${found.instance}`);
    const most = limit.amount === null ? "" : `of ${money(limit.amount, limit.currency)}; `;
    return this.facts.set("cost", money(limit.spent, limit.currency), `${most}${money(limit.forecast, limit.currency)} expected in all`);
  }

  async loadHistory() {
    const history = await this.kept("/history");
    if (history === null) return;
    this.best = history.best_hit_rate;
    fillFigures(this.facts, this.status, this.best);
    this.spans.read(history);
    const wallS = this.status.info.finished_at - this.status.info.submitted_at;
    this.timeline.draw(this.spans.all(0), wallS);
    this.lead(true);
  }

  // Until it has ended. `wrong` gets what cannot be mended by asking again.
  follow(wrong) {
    this.gap = false;
    this.spans.clear();
    const hear = (kind, event) => {
      if (kind === "gap") {
        this.gap = true;
        this.spans.clear();
      } else if (kind !== "end") this.spans.hear(kind, event);
      void this.happened().catch(wrong);
    };
    const tell = (line) => {
      this.line.className = `live ${line}`;
      say(this.line, line === "live" ? "live" : "the line is broken; it is tried again");
    };
    return follow(this.run, this.signal, hear, tell);
  }
}

export async function runView(place, [run], signal, page) {
  const shown = new RunPage(place, run, signal, page);
  // What cannot be had just now is asked for again, also the first time.
  const sure = (load) => poll(page, signal, EVERY_MS, async () => {
    await load();
    return false;
  });
  await sure(() => shown.begin());
  if (signal.aborted) return;
  if (shown.graph === null) return void await shown.costs();
  while (!signal.aborted) {
    if (!shown.goesOn) {
      shown.line.className = "live";
      say(shown.line, "");
      await sure(() => shown.loadHistory());
      void shown.costing.ask();
      // It may be resumed.
      await poll(page, signal, EVERY_MS, async () => {
        await shown.loadStatus();
        return !shown.goesOn;
      });
    }
    if (signal.aborted) return;
    let wrong = null;
    const told = shown.follow((problem) => {
      if (problem.status === 401 || problem.status === 404) wrong = problem;
      else if (!signal.aborted) page.trouble(problem.message);
    });
    let over = false;
    void told.then(() => (over = true), (problem) => (wrong = problem));
    await poll(page, signal, EVERY_MS, async () => {
      if (wrong !== null) throw wrong;
      void shown.costing.ask();
      await shown.happened();
      return !(over || !shown.goesOn);
    });
    await sure(() => shown.reload());
  }
}
