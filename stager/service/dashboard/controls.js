// What may be done to a run: cancel it, resume it. The one rule: what a cancel would lose is named before anybody can ask for it.

import { get, name, post } from "./api.js";
import { el, say, show } from "./dom.js";
import { count, size } from "./format.js";

const NAMED_MAX = 12;
const RESUMABLE = ["interrupted", "failed", "not_durable", "refused"];
const CANCELLABLE = ["active", "draining", "stopping", ...RESUMABLE];

function named(losses) {
  const parts = [];
  if (losses.files.length) {
    const more = losses.files.length - NAMED_MAX;
    parts.push(el("p", {}, `${size(losses.size_bytes)} in ${count(losses.files.length, "file")} would be lost, made and not durable anywhere:`));
    parts.push(el("ul", {}, losses.files.slice(0, NAMED_MAX).map((lfn) => el("li", {}, lfn)), more > 0 ? el("li", {}, `and ${more.toLocaleString("en")} more`) : null));
  } else parts.push(el("p", {}, "Nothing that was made would be lost."));
  if (losses.jobs_running) parts.push(el("p", {}, `${count(losses.jobs_running, "running job")} would be killed.`));
  return parts;
}

// `done` is called after a change, to load the run again.
export function controlsPart(run, signal, done) {
  const path = `/runs/${name(run)}`;
  const wrong = el("p", { class: "alert", role: "alert", hidden: true });
  const cancel = el("button", { type: "button", id: "cancel", hidden: true, "aria-controls": "sure", onclick: () => trying(ask) }, "Cancel…");
  const resume = el("button", { type: "button", id: "resume", hidden: true, onclick: () => trying(() => change("resume")) }, "Resume");
  const losses = el("div", { id: "losses" });
  const keep = el("button", { type: "button", onclick: () => close() }, "Keep it");
  const yes = el("button", { type: "button", id: "cancel-yes", onclick: () => trying(() => change("cancel")) }, "Cancel it for good");
  const sure = el("div", { id: "sure", class: "alert", role: "group", "aria-label": `Cancel run ${run}?`, hidden: true }, losses, el("p", { class: "line" }, keep, yes));

  function close() {
    show(sure, false);
    cancel.focus();
  }

  async function ask() {
    losses.replaceChildren(...named(await get(`${path}/losses`, signal)));
    show(sure, true);
    keep.focus();
  }

  async function change(what) {
    await post(`${path}/${what}`, signal);
    show(sure, false);
    await done();
  }

  async function trying(act) {
    show(wrong, false);
    for (const button of [cancel, resume, yes]) button.disabled = true;
    try {
      await act();
    } catch (problem) {
      if (signal.aborted) return;
      say(wrong, problem.message);
      show(wrong, true);
    } finally {
      for (const button of [cancel, resume, yes]) button.disabled = false;
    }
  }

  return {
    element: el("div", { class: "steering" }, el("p", { class: "line" }, cancel, resume), sure, wrong),
    set(state) {
      show(cancel, CANCELLABLE.includes(state));
      show(resume, RESUMABLE.includes(state));
      if (!CANCELLABLE.includes(state)) show(sure, false);
    },
  };
}
