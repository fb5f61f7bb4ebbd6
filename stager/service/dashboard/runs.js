// All runs, the newest first: how far each is, what it moved, and what of it would be lost now.

import { remember, words } from "./address.js";
import { get, name, query } from "./api.js";
import { badge, el, say, setBadge, show, table } from "./dom.js";
import { finder } from "./find.js";
import { count, duration, roughly, size, when } from "./format.js";
import { poll } from "./keeping.js";

const PAGE = 25;
const AT_ONCE = 4;
const EVERY_MS = 2000;
const STANDINGS = ["active", "succeeded", "failed", "not_durable", "refused", "interrupted", "cancelled"];
export const GOES_ON = ["active", "draining", "stopping", "cancelling"];

const COLUMNS = [["Run", "name"], ["State", "badged"], ["Jobs", "wide"], ["Time", ""], ["Fetched", "number"], ["Uploaded", "number"], ["At risk now", "number"], ["Begun", "number"]];

function make(item) {
  const meter = el("progress", { max: "1", value: "0", "aria-label": `jobs done of ${item.info.run}` });
  return [
    [el("a", {}), el("span", { class: "under" })],
    [badge(item.info.state), el("span", { class: "under wrong" })], [meter, el("span", { class: "under" }), el("span", { class: "under wrong" })], "", "", "", "", "",
  ];
}

function update(cells, { info, status }) {
  const goesOn = GOES_ON.includes(info.state);
  const link = cells[0].querySelector("a");
  link.setAttribute("href", info.parts > 1 ? `#/runs${query({ part_of: info.part_of })}` : `#/runs/${name(info.run)}`);
  say(link, info.parts > 1 ? info.part_of : info.run);
  say(cells[0].querySelector(".under"), info.parts > 1 ? count(info.parts, "run") : info.workflow === info.run.replace(/-\d+$/, "") ? "" : info.workflow);
  setBadge(cells[1].firstChild, info.state);
  const waiting = status?.waiting ?? [];
  say(cells[1].querySelector(".wrong"), waiting.length ? `waits for ${waiting.map((each) => each.origin || each.node || "its engine").join(", ")}` : "");
  cells[2].querySelector("progress").value = info.jobs_total ? info.jobs_done / info.jobs_total : 1;
  say(cells[2].querySelector(".under"), `${info.jobs_done.toLocaleString("en")} of ${count(info.jobs_total, "job")}`);
  say(cells[2].querySelector(".wrong"), status?.jobs.failed ? `${status.jobs.failed.toLocaleString("en")} failed` : "");
  const took = info.took_s;
  say(cells[3], goesOn ? (status && status.eta_s !== null && waiting.length === 0 ? `${roughly(status.eta_s)} left` : `for ${duration(Math.max(1, took))}`) : duration(took));
  const unknown = info.parts > 1 ? "see its runs" : "…";
  say(cells[4], status ? size(status.fetched_bytes) : unknown);
  say(cells[5], status ? size(status.uploaded_bytes) : unknown);
  const risk = status?.ledger.at_risk;
  say(cells[6], !risk ? unknown : risk.files ? `${size(risk.size_bytes)} in ${count(risk.files, "file")}` : "nothing");
  cells[6].classList.toggle("risky", Boolean(risk?.files));
  say(cells[7], when(info.submitted_at));
}

export async function runsView(place, _, signal, page) {
  const list = table("Runs", COLUMNS, (item) => item.info.run, make, update);
  const none = el("p", { class: "empty", hidden: true }, "There are no runs yet. ", el("code", {}, "stager submit workflow.yml --server URL"), " begins one.");
  const noSuch = el("p", { class: "empty", role: "status", hidden: true }, "No such runs.");
  const asked = words();
  const search = finder("runs", "Find runs", STANDINGS, () => changed(), signal);
  search.text.value = asked.find ?? "";
  search.state.value = STANDINGS.includes(asked.state) ? asked.state : "";
  const partOf = asked.part_of ?? "";
  const line = el("p", { class: "line find" }, ...search.parts);
  const more = el("button", { type: "button", hidden: true }, "Show older runs");
  const whole = partOf ? [el("p", { class: "back" }, el("a", { href: "#/runs" }, "All runs"))] : [];
  place.replaceChildren(...whole, el("h1", {}, partOf ? `Runs of ${partOf}` : "Runs"), line, none, noSuch, list.element, more);
  let wanted = PAGE;
  // Of a run that is over nothing changes but by a resume, which changes its state.
  const settled = new Map();
  const latest = new Map();
  let turn = 0;
  let again = () => {};
  more.addEventListener("click", () => {
    wanted += PAGE;
    again();
  });

  const choice = () => ({ contains: search.text.value.trim(), state: search.state.value, part_of: partOf });

  function changed() {
    wanted = PAGE;
    remember({ part_of: partOf, find: search.text.value.trim(), state: search.state.value });
    again();
  }

  async function statusOf(info) {
    if (info.parts > 1) return null;
    const key = `${info.run} ${info.state} ${info.finished_at}`;
    if (settled.has(key)) return settled.get(key);
    const status = await get(`/runs/${name(info.run)}`, signal);
    latest.set(info.run, status);
    if (!GOES_ON.includes(info.state)) settled.set(key, status);
    return status;
  }

  async function load() {
    turn += 1;
    const mine = turn;
    const chosen = choice();
    const infos = [];
    let cursor = null;
    do {
      const found = await get(`/runs${query({ ...chosen, limit: Math.min(PAGE * 4, wanted - infos.length), cursor })}`, signal);
      infos.push(...found.runs);
      cursor = found.next_cursor;
    } while (cursor !== null && infos.length < wanted);
    // An answer to what was asked before comes too late.
    if (mine !== turn) return;
    const isChosen = Object.values(chosen).some((each) => each !== "");
    show(line, isChosen || infos.length > 0);
    show(none, !isChosen && infos.length === 0);
    show(noSuch, isChosen && infos.length === 0);
    show(list.element, infos.length > 0);
    show(more, cursor !== null);
    const items = infos.map((info) => ({ info, status: info.parts > 1 ? null : latest.get(info.run) ?? null }));
    list.set(items);
    const open = items.slice();
    await Promise.all(Array.from({ length: AT_ONCE }, async () => {
      for (let item = open.shift(); item !== undefined; item = open.shift()) item.status = await statusOf(item.info);
    }));
    if (mine === turn) list.set(items);
  }

  await poll(page, signal, EVERY_MS, async () => {
    await load();
    again = () => void load().catch(() => {});
  });
}
