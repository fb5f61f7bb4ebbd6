// The jobs of a run as a list, those that failed first, each with its fault and the way to what it wrote.

import { get, name, query } from "./api.js";
import { badge, el, say, setBadge, show, table } from "./dom.js";
import { STATES } from "./graph.js";
import { words } from "./format.js";

const PAGE = 50;
const COLUMNS = [["Job", "name"], ["Type", "name"], ["State", "badged"], ["Attempts", "number"], ["Exit code", "number"], ["Fault", "last"]];

export function jobsPart(run, signal) {
  const make = (job) => [el("a", { href: `#/runs/${name(run)}/jobs/${name(job.job)}` }, job.job), job.job_type, badge(job.state), "", "", ""];
  const update = (cells, job) => {
    setBadge(cells[2].firstChild, job.state);
    say(cells[3], String(job.attempts));
    say(cells[4], job.exit_code === null ? "—" : String(job.exit_code));
    say(cells[5], job.fault ? job.fault.message : "");
  };
  const list = table("Jobs", COLUMNS, (job) => job.job, make, update);
  const choice = el("select", { id: "jobs-state" }, el("option", { value: "" }, "all"), STATES.map((state) => el("option", { value: state }, words(state))));
  const ofType = el("button", { type: "button", hidden: true });
  const none = el("p", { class: "note", hidden: true }, "None.");
  const more = el("button", { type: "button", hidden: true }, "Show more");
  let wanted = PAGE;
  let jobType = "";
  let touched = false;

  async function refresh() {
    const found = await get(`/runs/${name(run)}/jobs${query({ state: choice.value, job_type: jobType, limit: wanted })}`, signal);
    list.set(found.jobs);
    show(list.element, found.jobs.length > 0);
    show(none, found.jobs.length === 0);
    show(more, found.next_cursor !== null && wanted < 1000);
  }

  const again = () => void refresh().catch(() => {});
  choice.addEventListener("change", () => {
    touched = true;
    wanted = PAGE;
    again();
  });
  ofType.addEventListener("click", () => {
    jobType = "";
    show(ofType, false);
    choice.focus();
    again();
  });
  more.addEventListener("click", () => {
    wanted = Math.min(1000, wanted * 4);
    again();
  });
  return {
    element: el("div", {}, el("p", { class: "line" }, el("label", { for: "jobs-state" }, "Show"), choice, ofType), list.element, none, more),
    refresh,
    totals(status) {
      // Those that failed, until the person asks for others.
      if (!touched && jobType === "" && status.jobs.failed) choice.value = "failed";
    },
    ofType(type) {
      jobType = type;
      choice.value = "";
      touched = true;
      wanted = PAGE;
      say(ofType, `${type} only: show all types`);
      show(ofType, true);
      ofType.focus();
      again();
    },
  };
}
