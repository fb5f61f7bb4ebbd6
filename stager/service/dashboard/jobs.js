// The jobs of a run as a list, those that failed first, each with its fault and the way to what it wrote. What is looked for stands in the
// address.

import { remember, words } from "./address.js";
import { get, name, query } from "./api.js";
import { badge, el, say, setBadge, show, table } from "./dom.js";
import { finder } from "./find.js";
import { count } from "./format.js";
import { STATES } from "./graph.js";
import { asked } from "./keeping.js";

const PAGE = 50;
const PAGE_MAX = 1000;
const ASSUMED = "assumed: what it stands for is not known yet";
const COLUMNS = [["Job", "name"], ["Type", "name"], ["State", "badged"], ["Attempts", "number"], ["Exit code", "number"], ["Fault", "last"]];

function rows(run) {
  const make = (job) => [el("a", { href: `#/runs/${name(run)}/jobs/${name(job.job)}` }, job.job), job.job_type, badge(job.state), "", "", ""];
  const update = (cells, job) => {
    setBadge(cells[2].firstChild, job.state);
    say(cells[3], String(job.attempts));
    say(cells[4], job.exit_code === null ? "—" : String(job.exit_code));
    say(cells[5], job.fault ? job.fault.message : job.reused_from ? `reused from ${job.reused_from}` : job.assumed ? ASSUMED : "");
  };
  return table("Jobs", COLUMNS, (job) => job.job, make, update);
}

class Jobs {
  constructor(run, signal, page) {
    const given = words();
    Object.assign(this, { run, signal, wanted: PAGE, turn: 0, type: given.type ?? "" });
    // Those that failed, if any, until the person asks for others.
    this.touched = ["find", "state", "type"].some((word) => word in given);
    this.list = rows(run);
    this.finder = finder("jobs", "Find jobs", STATES, (what) => this.changed(what), signal);
    this.finder.text.value = given.find ?? "";
    this.finder.state.value = STATES.includes(given.state) ? given.state : "";
    this.typeButton = el("button", { type: "button", hidden: true, onclick: () => this.ofType("") });
    this.sum = el("p", { class: "note", role: "status" });
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.showMore() }, "Show more");
    this.changing = asked(page, signal, () => this.refresh());
    this.sayType();
    this.element = el("div", {}, el("p", { class: "line find" }, ...this.finder.parts, this.typeButton), this.changing.element, this.sum, this.list.element, this.more);
  }

  async refresh() {
    this.turn += 1;
    const { turn, wanted, finder: { text, state } } = this;
    const choice = { contains: text.value.trim(), state: state.value, job_type: this.type, limit: wanted };
    const found = await get(`/runs/${name(this.run)}/jobs${query(choice)}`, this.signal);
    // An answer to what was asked before comes too late.
    if (turn !== this.turn) return;
    this.list.set(found.jobs);
    show(this.list.element, found.jobs.length > 0);
    const shown = found.jobs.length;
    say(this.sum, shown === 0 ? "No such jobs." : shown < found.total ? `${shown.toLocaleString("en")} of ${count(found.total, "job")}` : count(found.total, "job"));
    show(this.more, shown < found.total && wanted < PAGE_MAX);
  }

  changed(what) {
    // Who looks for a name means any of that name, not only those that failed.
    if (what === "text" && !this.touched) this.finder.state.value = "";
    this.touched = true;
    this.wanted = PAGE;
    remember({ find: this.finder.text.value.trim(), type: this.type, state: this.finder.state.value || (this.finder.text.value || this.type ? "" : "all") });
    void this.changing.ask();
  }

  showMore() {
    this.wanted = Math.min(PAGE_MAX, this.wanted * 4);
    void this.changing.ask();
  }

  sayType() {
    show(this.typeButton, this.type !== "");
    say(this.typeButton, `type ${this.type} only: show all types`);
  }

  ofType(type) {
    this.type = type;
    this.sayType();
    this.finder.text.value = "";
    this.finder.state.value = "";
    this.changed("type");
    (type ? this.typeButton : this.finder.text).focus();
  }

  ofName(text) {
    this.type = "";
    this.sayType();
    this.finder.text.value = text;
    this.finder.state.value = "";
    this.changed("text");
    this.finder.text.focus();
  }

  totals(status) {
    if (!this.touched && status.jobs.failed) this.finder.state.value = "failed";
  }
}

export const jobsPart = (run, signal, page) => new Jobs(run, signal, page);
