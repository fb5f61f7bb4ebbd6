// Calls of the REST API. The token is kept for as long as the tab is open (sessionStorage), sent in a header, and in no address.

const API = "/api/v1";
const KEY = "stager-token";
const ANSWERS_MAX = 300;
const RETRY_MS_MAX = 15_000;

// What was answered last, by path, with its tag: the service says 304 while it holds.
const answers = new Map();

export const token = () => sessionStorage.getItem(KEY) ?? "";

export function keep(secret) {
  sessionStorage.setItem(KEY, secret);
}

export function forget() {
  sessionStorage.removeItem(KEY);
  answers.clear();
}

// What happened, and what to do where that is not a part of it.
function saidBy(status, { detail, fix }) {
  if (!detail) return `the service answered ${status}; if it goes on doing so, tell its administrator`;
  return fix && !detail.endsWith(fix) ? `${detail}; ${fix}` : detail;
}

export class Problem extends Error {
  constructor(status, body, retryAfterS = 0) {
    super(saidBy(status, body));
    this.status = status;
    this.code = body.code ?? "";
    this.retryAfterS = retryAfterS;
  }
}

export const away = () => new Problem(0, { detail: "the service does not answer; it is asked again", code: "away" });

async function problemOf(answer) {
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // A proxy may answer in its own words.
  }
  return new Problem(answer.status, body, Number(answer.headers.get("Retry-After") ?? 0));
}

async function call(path, headers, signal, method = "GET") {
  try {
    return await fetch(API + path, { method, headers: { Authorization: `Bearer ${token()}`, ...headers }, signal, cache: "no-store", credentials: "omit" });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw away();
  }
}

// A line that breaks in the middle of an answer is one that gives none.
async function bodyOf(answer, signal) {
  try {
    return await answer.json();
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw away();
  }
}

// The same object again where nothing has changed.
export async function get(path, signal) {
  const known = answers.get(path);
  const answer = await call(path, known?.tag ? { "If-None-Match": known.tag } : {}, signal);
  if (answer.status === 304 && known) return known.body;
  if (!answer.ok) throw await problemOf(answer);
  const body = await bodyOf(answer, signal);
  answers.delete(path);
  answers.set(path, { tag: answer.headers.get("ETag"), body });
  if (answers.size > ANSWERS_MAX) answers.delete(answers.keys().next().value);
  return body;
}

// A change. Only who has the token can ask for it: no cookie would stand in for it, so no page of somebody else's can.
export async function post(path, signal) {
  const answer = await call(path, {}, signal, "POST");
  if (!answer.ok) throw await problemOf(answer);
  return bodyOf(answer, signal);
}

export const name = encodeURIComponent;
export const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

// Every event of a run until its end, in order, however often the line breaks. EventSource could not send the token.
export async function follow(run, signal, hear, tell) {
  let last = "";
  let pauseMs = 0;
  let retryMs = 2000;
  while (!signal.aborted) {
    try {
      const answer = await call(`/runs/${name(run)}/events`, { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) }, signal);
      if (!answer.ok) throw await problemOf(answer);
      tell("live");
      pauseMs = 0;
      for await (const event of eventsOf(answer.body)) {
        if (event.id) last = event.id;
        if (event.retry) retryMs = Number(event.retry);
        if (event.event) hear(event.event, JSON.parse(event.data));
        if (event.event === "end") return;
      }
    } catch (problem) {
      if (signal.aborted) return;
      if (problem instanceof Problem && [401, 403, 404].includes(problem.status)) throw problem;
    }
    tell("away");
    pauseMs = Math.min(RETRY_MS_MAX, pauseMs ? pauseMs * 2 : retryMs);
    await pause(pauseMs, signal);
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) yield fieldsOf(block);
  }
}

export function fieldsOf(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
  }
  return fields;
}

export function pause(ms, signal) {
  return new Promise((done) => {
    if (signal?.aborted) return done();
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
