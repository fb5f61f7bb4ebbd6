// Looking again: as often as is worth it, not while nobody sees the page, and no more than the service can stand.

import { pause, Problem } from "./api.js";
import { el, say, show } from "./dom.js";

const RETRY_MS = 3000;

// Until `signal`; what fails for a while is told and tried again. After a slow answer it waits longer.
export async function poll(page, signal, everyMs, load) {
  while (!signal.aborted) {
    const begun = performance.now();
    let waitMs = everyMs;
    try {
      const more = await load();
      page.trouble("");
      if (more === false) return;
    } catch (problem) {
      if (signal.aborted) return;
      if (!(problem instanceof Problem) || [401, 404].includes(problem.status)) throw problem;
      page.trouble(problem.message);
      waitMs = Math.max(everyMs, problem.retryAfterS * 1000, 3000);
    }
    await pause(Math.max(waitMs, 2 * (performance.now() - begun)), signal);
    await seen(signal);
  }
}

function seen(signal) {
  if (!document.hidden || signal.aborted) return undefined;
  return new Promise((done) => {
    const wake = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", wake);
      done();
    };
    document.addEventListener("visibilitychange", wake);
    signal.addEventListener("abort", wake, { once: true });
  });
}

// A part of a page that is asked for when a person opens or changes it, until it is there. What stands against it is told in its place: the
// line at the top is of what the page loads by itself, which may go well meanwhile.
export function asked(page, signal, load) {
  const element = el("p", { class: "alert", role: "alert", hidden: true });
  let turn = 0;
  function tell(text) {
    say(element, text);
    show(element, text !== "");
  }
  async function ask() {
    turn += 1;
    const mine = turn;
    while (!signal.aborted && mine === turn) {
      try {
        await load();
        return mine === turn ? tell("") : undefined;
      } catch (problem) {
        if (signal.aborted || mine !== turn) return undefined;
        if (!(problem instanceof Problem) || [401, 404].includes(problem.status)) return page.failed(problem);
        tell(problem.message);
        await pause(Math.max(RETRY_MS, problem.retryAfterS * 1000), signal);
        await seen(signal);
      }
    }
    return undefined;
  }
  return { element, ask };
}

// Asked for often, done at most so often and never twice at once. Who asks waits for the next time that it is done.
export function sparingly(everyMs, signal, act) {
  let queued = null;
  let running = Promise.resolve();
  let freeAt = 0;
  async function turn() {
    await running;
    await pause(Math.max(0, freeAt - performance.now()), signal);
    queued = null;
    if (signal.aborted) return;
    const begun = performance.now();
    const acting = act();
    running = acting.then(() => {}, () => {});
    try {
      await acting;
    } finally {
      freeAt = performance.now() + Math.max(everyMs, 5 * (performance.now() - begun));
    }
  }
  return function ask() {
    queued ??= turn();
    return queued;
  };
}
