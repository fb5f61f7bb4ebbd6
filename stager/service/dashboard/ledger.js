// The ledger: each file that the run makes, by how safe it is; what would be lost now comes first.

import { get, name, query } from "./api.js";
import { el, say, show, table } from "./dom.js";
import { count, size } from "./format.js";
import { asked } from "./keeping.js";

const PAGE = 50;
const GROUPS = [
  ["at_risk", "At risk", "made, and on fewer disks than are wanted: lost if this node is lost now"],
  ["safe", "Safe", "on the I/O nodes, verified there"],
  ["written", "Written", "at the origin, only its size was checked"],
  ["durable", "Durable", "at the origin, its content verified"],
  ["superseded", "Superseded", "something newer is where they were to go, and they do not replace it"],
  ["kept", "Kept", "no longer needed, and on the I/O nodes for later runs until their room is wanted"],
  ["not_made", "Finals to come", "their jobs are not done"],
];
const COLUMNS = [["File", "name"], ["Size", "number"], ["Goes to", "name"], ["How verified", ""]];

function make(file) {
  return [[el("span", {}, file.lfn), el("span", { class: "under" })], "", "", ""];
}

function update(cells, file) {
  say(cells[0].querySelector(".under"), file.fault);
  say(cells[1], file.size_bytes === null ? "—" : size(file.size_bytes));
  say(cells[2], file.origin ? `${file.origin}:${file.path}` : "nowhere: an intermediate");
  say(cells[3], file.verified || "—");
}

function group(run, state, title, about, signal, page) {
  const list = table(title, COLUMNS, (file) => file.lfn, make, update);
  const sum = el("span", { class: "sum" });
  const more = el("button", { type: "button", hidden: true }, "Show more");
  const opened = asked(page, signal, () => refresh());
  const element = el("details", { class: `standing ${state}`, "data-standing": state, open: state === "at_risk" },
    el("summary", {}, el("i", { class: `key ${state}` }), title, " ", sum, el("span", { class: "under" }, about)), opened.element, list.element, more);
  let wanted = PAGE;
  show(list.element, false);

  async function refresh() {
    if (!element.open) return;
    const found = await get(`/runs/${name(run)}/files${query({ state, limit: Math.min(1000, wanted), final: state === "not_made" ? true : null })}`, signal);
    list.set(found.files);
    show(list.element, found.files.length > 0);
    show(more, found.next_cursor !== null && wanted < 1000);
  }

  more.addEventListener("click", () => {
    wanted = Math.min(1000, wanted * 4);
    void opened.ask();
  });
  element.addEventListener("toggle", opened.ask);
  return { element, refresh, sum };
}

// Of finals only: an intermediate that is still to be made is nobody's worry.
function toCome(status) {
  const left = status.info.jobs_done === status.info.jobs_total ? 0 : status.finals_total - status.finals_durable - status.ledger.written.files;
  return left > 0 ? `up to ${count(left, "file")}` : "none";
}

export function ledgerPart(run, signal, page) {
  const groups = new Map(GROUPS.map(([state, title, about]) => [state, group(run, state, title, about, signal, page)]));
  return {
    element: el("div", { class: "ledger" }, [...groups.values()].map((each) => each.element)),
    totals(status) {
      for (const [state, each] of groups) {
        const totals = status.ledger[state];
        if (totals !== undefined) say(each.sum, totals.files ? `${count(totals.files, "file")}, ${size(totals.size_bytes)}` : "none");
        else say(each.sum, toCome(status));
        each.element.classList.toggle("filled", Boolean(totals?.files));
      }
    },
    refresh: () => Promise.all([...groups.values()].map((each) => each.refresh())),
  };
}

export const atRisk = (status) => (status.ledger.at_risk.files ? `${size(status.ledger.at_risk.size_bytes)}` : "nothing");
export const unsafeFiles = (status) => (status.ledger.at_risk.files ? `in ${count(status.ledger.at_risk.files, "file")}` : `${size(status.ledger.safe.size_bytes)} safe on nodes`);
