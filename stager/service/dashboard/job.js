// One job: how it stands, why it failed, what its attempts wrote.

import { get, name, query } from "./api.js";
import { badge, el, figures, say, setBadge, show } from "./dom.js";
import { size, words } from "./format.js";
import { poll } from "./keeping.js";

const EVERY_MS = 2000;
const ENDED = ["done", "failed", "skipped"];

export async function jobView(place, [run, job], signal, page) {
  const state = badge("waiting");
  const facts = figures([["type", "Type"], ["attempts", "Attempts"], ["exit", "Exit code"]]);
  const fault = el("p", { class: "alert", hidden: true });
  const assumed = el("p", { class: "note", hidden: true }, "This job is assumed: it stands for what is not known before a list is made.");
  const empty = el("p", { class: "empty", hidden: true }, "It has written nothing yet.");
  const logs = el("div", { class: "logs" });
  place.replaceChildren(
    el("p", { class: "back" }, el("a", { href: `#/runs/${name(run)}` }, `Run ${run}`)),
    el("div", { class: "line" }, el("h1", {}, job), state),
    assumed, facts.element, fault, el("h2", {}, "Its output"), empty, logs);
  const shown = new Map();

  // The newest attempt first, and only what has something to say.
  function fill(found) {
    show(empty, found.every((log) => log.size_bytes === 0));
    for (const log of found.filter((each) => each.size_bytes > 0)) {
      const key = `${log.attempt} ${log.stream}`;
      if (!shown.has(key)) {
        const title = el("h3", {});
        const text = el("pre", { tabindex: "0", role: "region", "aria-label": `attempt ${log.attempt}, ${log.stream}` });
        shown.set(key, [title, text]);
        logs.prepend(el("div", {}, title, text));
      }
      const [title, text] = shown.get(key);
      const cut = log.size_bytes > new TextEncoder().encode(log.text).length ? ", the end of it" : "";
      say(title, `Attempt ${log.attempt}, ${log.stream}: ${size(log.size_bytes)}${cut}`);
      say(text, log.text);
    }
  }

  await poll(page, signal, EVERY_MS, async () => {
    const [{ jobs }, written] = await Promise.all([
      get(`/runs/${name(run)}/jobs${query({ job })}`, signal),
      get(`/runs/${name(run)}/jobs/${name(job)}/logs`, signal),
    ]);
    fill(written.logs);
    if (jobs.length === 0) return true;
    const now = jobs[0];
    setBadge(state, now.state);
    facts.set("type", now.job_type);
    facts.set("attempts", String(now.attempts));
    facts.set("exit", now.exit_code === null ? "—" : String(now.exit_code));
    show(assumed, now.assumed);
    show(fault, now.fault !== null);
    say(fault, now.fault ? `${words(now.fault.code)}: ${now.fault.message}` : "");
    return !ENDED.includes(now.state);
  });
}
