// What went on when: jobs by type, fetches, uploads, a bar each, as many rows as went on at once. Of a run that goes on it is made of the
// events as they come, of one that is over of its history.

import { el, say, svg } from "./dom.js";
import { duration, size } from "./format.js";

const WIDTH_MIN = 560;
const MARGIN = 64;
const LANE = 10;
// Of a group: drawn anew each second while a run goes on, and looked through by a person.
const SPANS_MAX = 1500;
const ROWS_MAX = 80;
const COLOURS = 7;
const BEGIN_MOVE = { fetch: "fetches", upload: "uploads" };
const END_MOVE = ["transfer_done", "transfer_failed", "transfer_cancelled"];
const GROUPS = ["jobs", "fetches", "uploads"];

export class Spans {
  constructor(submittedAt, typeOf) {
    this.submittedAt = submittedAt;
    this.typeOf = typeOf;
    this.done = [];
    this.open = new Map();
  }

  clear() {
    this.done = [];
    this.open.clear();
  }

  // Whether it changes the picture.
  hear(kind, event) {
    const at = event.at - this.submittedAt;
    if (kind === "start_attempt") this.open.set(`job ${event.subject}`, { group: "jobs", label: event.subject, type: this.typeOf(event.subject), begin: at });
    else if (kind === "attempt_ended") this.end(`job ${event.subject}`, at, event.outcome, event.text);
    else if (kind in BEGIN_MOVE) this.open.set(`move ${event.transfer}`, { group: BEGIN_MOVE[kind], label: event.subject, begin: at });
    else if (END_MOVE.includes(kind)) {
      const open = this.open.get(`move ${event.transfer}`);
      if (open !== undefined && event.duration_s !== null) open.begin = Math.max(open.begin, at - event.duration_s);
      this.end(`move ${event.transfer}`, at, kind === "transfer_done" ? "ok" : "failed", event.text);
    } else return false;
    return true;
  }

  end(key, at, outcome, text) {
    const span = this.open.get(key);
    this.open.delete(key);
    if (span !== undefined) this.done.push({ ...span, end: at, outcome, text });
  }

  read(history) {
    this.clear();
    this.done = history.attempts.map((span) => ({ group: "jobs", label: span.job, type: span.job_type, begin: span.begun_s, end: span.ended_s, outcome: span.outcome }));
    for (const move of history.moves) {
      this.done.push({ group: move.direction === "fetch" ? "fetches" : "uploads", label: `${move.lfn}: ${size(move.size_bytes)}`, begin: move.begun_s, end: move.ended_s, outcome: "ok" });
    }
  }

  all(nowS) {
    return [...this.done, ...[...this.open.values()].map((span) => ({ ...span, end: Math.max(nowS, span.begin), outcome: "running" }))];
  }
}

// The lowest row that is free for each of the spans, which ascend by their begin.
export function lanes(spans) {
  const ends = [];
  return spans.map((span) => {
    let lane = ends.findIndex((end) => end <= span.begin);
    if (lane < 0) lane = ends.length;
    ends[lane] = span.end;
    return lane;
  });
}

// What runs and what failed comes first, then what took longest.
const weight = (span) => (span.outcome === "running" ? 2 : span.outcome === "ok" ? 0 : 1);

// As many of the first as there is room for, so that each moment has no more of them than rows.
function chosen(spans) {
  const rows = [];
  const kept = [];
  for (const span of spans.toSorted((a, b) => weight(b) - weight(a) || b.end - b.begin - (a.end - a.begin))) {
    let row = rows.find((others) => others.every((other) => other.end <= span.begin || span.end <= other.begin));
    if (row === undefined) {
      if (rows.length === ROWS_MAX) continue;
      row = [];
      rows.push(row);
    }
    row.push(span);
    kept.push(span);
    if (kept.length === SPANS_MAX) break;
  }
  return kept;
}

const ascending = (spans) => spans.toSorted((a, b) => a.begin - b.begin || a.end - b.end);

// Those that are drawn, each with its row, in the order in which they begin.
export function placed(spans) {
  if (spans.length <= SPANS_MAX) {
    const all = ascending(spans);
    const rows = lanes(all);
    if (rows.every((row) => row < ROWS_MAX)) return [all, rows];
  }
  const some = ascending(chosen(spans));
  return [some, lanes(some)];
}

export function timelinePicture() {
  const keys = el("p", { class: "keys" });
  const note = el("p", { class: "note" });
  const room = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Timeline, wide: it moves sideways" });
  const element = el("div", {}, keys, note, room);
  const paints = new Map();
  let width = WIDTH_MIN;

  // A type keeps its colour while the picture grows; of more types than colours those that came first have one each.
  function paintOf(type) {
    if (!paints.has(type)) paints.set(type, paints.size < COLOURS ? `type${paints.size}` : "others");
    return paints.get(type);
  }

  const across = (share) => MARGIN + (width - MARGIN) * Math.min(1, Math.max(0, share));

  function bars(group, spans, wallS, top) {
    const [shown, rows] = placed(spans);
    const parts = [svg("text", { x: 0, y: top + 10 }, group)];
    shown.forEach((span, at) => {
      const [left, right] = [across(span.begin / wallS), across(span.end / wallS)];
      const paint = group === "jobs" ? paintOf(span.type) : group === "fetches" ? "fetch" : "upload";
      const text = span.text ?? `${span.label}${span.outcome === "ok" ? "" : ` (${span.outcome})`}`;
      parts.push(svg("rect", { x: left.toFixed(1), y: top + rows[at] * LANE, width: Math.max(0.8, right - left).toFixed(1), height: LANE - 2, class: `${paint} ${span.outcome === "ok" ? "" : span.outcome}` },
        svg("title", {}, `${span.label}${span.text ? `: ${text}` : text.slice(span.label.length)}, ${duration(span.begin)} to ${duration(span.end)}`)));
    });
    return [parts, top + (Math.max(-1, ...rows) + 1) * LANE + (shown.length ? 10 : 20), spans.length - shown.length];
  }

  return {
    element,
    draw(spans, wallS, said = "") {
      const parts = [];
      let top = 4;
      const left = [];
      // Its text is as large as all text, however wide the screen is.
      width = Math.max(WIDTH_MIN, room.clientWidth);
      for (const group of GROUPS) {
        const all = spans.filter((span) => span.group === group);
        const [made, next, leftOut] = bars(group, all, Math.max(wallS, 0.001), top);
        parts.push(...made);
        top = next;
        if (leftOut) left.push(`${leftOut.toLocaleString("en")} of ${all.length.toLocaleString("en")} ${group === "jobs" ? "attempts of jobs" : group}`);
      }
      for (const [share, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
        parts.push(svg("text", { x: across(share), y: top + 12, "text-anchor": anchor }, duration(wallS * share)));
      }
      const jobs = spans.filter((span) => span.group === "jobs").length;
      const about = `${jobs} attempts of jobs, ${spans.length - jobs} transfers, in ${duration(wallS)}`;
      room.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${top + 18}`, width, height: top + 18, role: "img", class: "timeline", "aria-label": about }, ...parts));
      const named = [...paints].filter(([, paint]) => paint !== "others");
      const others = paints.size > named.length ? [["other job types", "others"]] : [];
      keys.replaceChildren(...[...named, ...others].map(([type, paint]) => el("span", {}, el("i", { class: paint }), type)));
      const rest = left.length ? `Not drawn: ${left.join(", ")}; what runs comes first, then what failed, then what took longest. Every job is in the list below (/ goes to where it is found by name).` : "";
      say(note, [said, rest].filter(Boolean).join(" "));
    },
  };
}
