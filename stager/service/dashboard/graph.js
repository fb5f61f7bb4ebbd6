// A run as a graph, by layers of depth: a box for each job, or, where there are many, one for each job type with how many of its jobs
// stand how. Drawn once; afterwards only colours, figures and bars change, unless the run goes on with other jobs. Jobs that are only there
// since the members of a scatter are not known yet are dashed.

import { el, say, svg } from "./dom.js";
import { count, words } from "./format.js";

const JOBS_DRAWN_MAX = 120;
const JOBS_ON_PHONE_MAX = 12;
const TYPES_MAX = 80;
const NARROW = 620;
const LABEL_MAX = 19;

// In the order of a bar: what is over, what goes on, what is to come.
export const STATES = ["done", "failed", "skipped", "running", "admitted", "ready", "backoff", "waiting"];
const SIGNS = { done: "✓", failed: "✗", skipped: "–", running: "▶", admitted: "◆", ready: "○", backoff: "↻", waiting: "·" };

const ASSUMED_SIGN = "?";

const short = (text) => (text.length > LABEL_MAX ? `${text.slice(0, LABEL_MAX - 1)}…` : text);

// [{label, jobs: places in the graph, depth, parents: places of nodes}], one for each job.
function eachJob(jobs) {
  return jobs.map((job, at) => ({ label: job.job, jobs: [at], depth: job.depth, parents: job.parents }));
}

// Of names that differ by their numbers only: "fit_0017" and "fit_0018".
export const stemOf = (text) => text.replace(/\d+/g, "#");
const longestOf = (stem) => stem.split("#").reduce((best, part) => (part.length > best.length ? part : best), "");

// One for each type, in the layer of its first job. Where there are too many, one for all types that differ by a number; and the smallest
// together where even that is too many.
export function byType(jobs) {
  const types = new Set(jobs.map((job) => job.job_type));
  const byStem = types.size > TYPES_MAX;
  const places = new Map();
  jobs.forEach((job, at) => {
    const key = byStem ? stemOf(job.job_type) : job.job_type;
    if (!places.has(key)) places.set(key, []);
    places.get(key).push(at);
  });
  let kept = [...places.keys()];
  if (kept.length > TYPES_MAX) kept = kept.sort((a, b) => places.get(b).length - places.get(a).length).slice(0, TYPES_MAX - 1);
  const names = new Map(kept.map((type, at) => [type, at]));
  // What a click on it looks for: `type`, or what is the same in all these names.
  const groups = kept.map((key) => ({ label: key, type: types.has(key) ? key : "", named: types.has(key) ? "" : longestOf(key), jobs: [], depth: Infinity, parents: new Set() }));
  const others = places.size - kept.length;
  if (others > 0) groups.push({ label: `${others.toLocaleString("en")} other types`, jobs: [], depth: Infinity, parents: new Set() });
  const groupOf = jobs.map((job) => names.get(byStem ? stemOf(job.job_type) : job.job_type) ?? groups.length - 1);
  jobs.forEach((job, at) => {
    const group = groups[groupOf[at]];
    group.jobs.push(at);
    group.depth = Math.min(group.depth, job.depth);
    for (const parent of job.parents) if (groupOf[parent] !== groupOf[at]) group.parents.add(groupOf[parent]);
  });
  return groups.map((group) => ({ ...group, parents: [...group.parents] }));
}

// Layers without gaps; within a layer each stands near the middle of what it waits for.
export function layersOf(nodes) {
  const depths = [...new Set(nodes.map((node) => node.depth))].sort((a, b) => a - b);
  const rank = new Map(depths.map((depth, at) => [depth, at]));
  const layers = depths.map(() => []);
  nodes.forEach((node, at) => layers[rank.get(node.depth)].push(at));
  const place = new Float64Array(nodes.length);
  for (const layer of layers) {
    const middle = new Map(layer.map((at) => {
      const { parents } = nodes[at];
      return [at, parents.length ? parents.reduce((sum, parent) => sum + place[parent], 0) / parents.length : 0];
    }));
    layer.sort((a, b) => middle.get(a) - middle.get(b) || a - b);
    layer.forEach((at, row) => {
      place[at] = row - (layer.length - 1) / 2;
    });
  }
  return { layers, place };
}

function counted(node, states) {
  const found = {};
  for (const at of node.jobs) found[states[at]] = (found[states[at]] ?? 0) + 1;
  return found;
}

const told = (found) => STATES.filter((state) => found[state]).map((state) => `${found[state].toLocaleString("en")} ${words(state)}`).join(", ");
const assumedText = (node) => (node.assumed === node.jobs.length ? "assumed" : `${node.assumed.toLocaleString("en")} assumed`);

function figuresOf(node, found) {
  const done = (found.done ?? 0).toLocaleString("en");
  const beside = ["failed", "running"].find((state) => found[state]);
  if (beside === undefined && node.assumed) return `${done} of ${count(node.jobs.length, "job")}, ${assumedText(node)}`;
  if (beside === undefined) return `${done} of ${count(node.jobs.length, "job")}`;
  return `${done} of ${node.jobs.length.toLocaleString("en")}, ${found[beside].toLocaleString("en")} ${beside}`;
}

class Drawing {
  // `across`: layers go from left to right, else from top to bottom. `choose(node)`: somebody wants to see more of it.
  constructor(nodes, { collapsed, across, choose }) {
    this.nodes = nodes;
    this.collapsed = collapsed;
    this.size = collapsed ? { width: 190, height: 54 } : { width: 164, height: 28 };
    const { layers, place } = layersOf(nodes);
    this.layers = layers;
    this.lay(layers, place, across);
    this.boxes = nodes.map((node, at) => this.box(node, at));
    const edges = svg("path", { d: this.edges(across), class: "edges" });
    this.element = svg("svg", { viewBox: `0 0 ${this.width} ${this.height}`, width: this.width, height: this.height, class: "graph", role: "group", "aria-label": `${count(nodes.length, collapsed ? "job type" : "job")}; arrow keys move among them` },
      edges, ...this.boxes.map((box) => box.element));
    this.at = 0;
    this.boxes[0]?.element.setAttribute("tabindex", "0");
    this.element.addEventListener("click", (event) => this.chosen(event, choose));
    this.element.addEventListener("keydown", (event) => this.key(event, choose, across));
  }

  lay(layers, place, across) {
    const step = across ? { x: this.size.width + 56, y: this.size.height + 12 } : { x: this.size.width + 16, y: this.size.height + 34 };
    const most = Math.max(1, ...layers.map((layer) => layer.length));
    this.x = new Float64Array(place.length);
    this.y = new Float64Array(place.length);
    layers.forEach((layer, rank) => layer.forEach((at) => {
      const along = place[at] + (most - 1) / 2;
      this.x[at] = 2 + (across ? rank : along) * step.x;
      this.y[at] = 2 + (across ? along : rank) * step.y;
    }));
    const [columns, rows] = across ? [layers.length, most] : [most, layers.length];
    this.width = Math.max(1, columns * step.x - (step.x - this.size.width) + 4);
    this.height = Math.max(1, rows * step.y - (step.y - this.size.height) + 4);
  }

  edges(across) {
    const { width, height } = this.size;
    const parts = [];
    this.nodes.forEach((node, to) => node.parents.forEach((from) => {
      const [x1, y1] = across ? [this.x[from] + width, this.y[from] + height / 2] : [this.x[from] + width / 2, this.y[from] + height];
      const [x2, y2] = across ? [this.x[to], this.y[to] + height / 2] : [this.x[to] + width / 2, this.y[to]];
      const [bendX, bendY] = across ? [Math.max(24, (x2 - x1) / 2), 0] : [0, Math.max(14, (y2 - y1) / 2)];
      parts.push(`M${x1} ${y1}C${x1 + bendX} ${y1 + bendY} ${x2 - bendX} ${y2 - bendY} ${x2} ${y2}`);
    }));
    return parts.join("");
  }

  box(node, at) {
    const { width, height } = this.size;
    const title = svg("title", {});
    const label = svg("text", { x: this.collapsed ? 10 : 26, y: 18 }, short(node.label));
    // A picture in the picture ends at its edge: no letters are so wide that they leave the box.
    const texts = svg("svg", { width: width - 6, height }, label, " ");
    const parts = [title, svg("rect", { class: "frame", width, height, rx: 6 }), texts];
    const box = { title, figures: null, sign: null, bars: null };
    if (this.collapsed) {
      box.figures = svg("text", { x: 10, y: 34, class: "small" });
      texts.append(box.figures);
      box.bars = new Map(STATES.map((state) => [state, svg("rect", { class: `bar ${state}`, y: 41, height: 7, x: 10, width: 0 })]));
      parts.push(...box.bars.values());
    } else {
      box.sign = svg("text", { x: 9, y: 18.5, class: "sign", "aria-hidden": "true" });
      parts.push(box.sign);
    }
    const place = `translate(${this.x[at]} ${this.y[at]})`;
    box.element = svg("g", { class: "box", transform: place, tabindex: "-1", role: "button", "data-at": at, "data-name": node.label }, ...parts);
    return box;
  }

  update(states) {
    this.nodes.forEach((node, at) => {
      const box = this.boxes[at];
      const found = counted(node, states);
      // What is said begins with what is seen.
      const figures = figuresOf(node, found);
      const also = node.assumed ? `, ${assumedText(node)}` : "";
      const text = this.collapsed ? `${node.label}: ${told(found)}${also}` : `${node.label}: ${words(states[node.jobs[0]])}${also}`;
      if (box.title.textContent === text) return;
      say(box.title, text);
      box.element.setAttribute("aria-label", this.collapsed ? [`${node.label} ${figures}`, told({ ...found, done: 0, [found.failed ? "failed" : "running"]: 0 })].filter(Boolean).join("; ") : text);
      if (this.collapsed) this.fill(box, node, found, figures);
      else {
        const state = states[node.jobs[0]];
        box.element.setAttribute("class", `box job ${state}${node.assumed ? " assumed" : ""}`);
        say(box.sign, node.assumed && state === "waiting" ? ASSUMED_SIGN : SIGNS[state]);
      }
    });
  }

  fill(box, node, found, figures) {
    const wide = this.size.width - 20;
    let left = 10;
    for (const state of STATES) {
      const share = (found[state] ?? 0) / node.jobs.length;
      box.bars.get(state).setAttribute("x", left);
      box.bars.get(state).setAttribute("width", share * wide);
      left += share * wide;
    }
    say(box.figures, figures);
    box.element.setAttribute("class", `box type${found.failed ? " has-failed" : ""}${(found.done ?? 0) === node.jobs.length ? " all-done" : ""}${node.assumed === node.jobs.length ? " assumed" : ""}`);
  }

  chosen(event, choose) {
    const box = event.target.closest(".box");
    if (box === null) return;
    this.go(Number(box.dataset.at), false);
    choose(this.nodes[Number(box.dataset.at)]);
  }

  go(at, focus = true) {
    this.boxes[this.at].element.setAttribute("tabindex", "-1");
    this.at = at;
    this.boxes[at].element.setAttribute("tabindex", "0");
    if (focus) this.boxes[at].element.focus();
  }

  key(event, choose, across) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(this.nodes[this.at]);
      return;
    }
    const steps = across ? { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] } : { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const rank = this.layers.findIndex((layer) => layer.includes(this.at));
    const row = this.layers[rank].indexOf(this.at);
    const layer = this.layers[rank + step[0]];
    if (layer === undefined) return;
    const near = step[0] ? Math.round((row + 0.5) / this.layers[rank].length * layer.length - 0.5) : row + step[1];
    if (near < 0 || near >= layer.length) return;
    this.go(layer[near]);
  }
}

// `jobs` as the service gives them. Each job, or by type: as many as can be read, and as the person wants it, who may have said so of the
// picture `before` this one.
export function graphPicture(jobs, choose, before = null) {
  const room = el("div", { class: "wide graph-room" });
  const keys = STATES.map((state) => el("span", {}, el("i", { class: `key ${state}` }), words(state)));
  if (jobs.some((job) => job.assumed)) keys.push(el("span", {}, el("i", { class: "key assumed" }), "assumed: how many there are is not known yet"));
  const legend = el("p", { class: "keys" }, keys);
  const toggle = el("button", { type: "button" });
  const element = el("div", {}, jobs.length <= JOBS_DRAWN_MAX && jobs.length > 1 ? toggle : null, legend, room);
  let wanted = jobs.length <= JOBS_DRAWN_MAX ? before?.wanted ?? null : null;
  let collapsed = wanted ?? jobs.length > (window.innerWidth < NARROW ? JOBS_ON_PHONE_MAX : JOBS_DRAWN_MAX);
  let drawing = null;
  let states = [];

  function draw() {
    performance.mark("graph begins");
    const width = room.clientWidth || window.innerWidth;
    narrow = width < NARROW;
    say(toggle, collapsed ? "Show each job" : "Show types");
    const nodes = (collapsed ? byType(jobs) : eachJob(jobs)).map((node) => ({ ...node, assumed: node.jobs.filter((at) => jobs[at].assumed).length }));
    drawing = new Drawing(nodes, { collapsed, across: !narrow, choose: (node) => choose(node, collapsed) });
    if (states.length) drawing.update(states);
    room.replaceChildren(drawing.element);
    performance.measure("graph drawn", "graph begins");
  }

  // A phone that is turned has another shape.
  let narrow = false;
  const turned = () => {
    if (drawing !== null && narrow !== room.clientWidth < NARROW) draw();
  };

  toggle.addEventListener("click", () => {
    collapsed = !collapsed;
    wanted = collapsed;
    draw();
  });

  return {
    element,
    draw,
    turned,
    get wanted() {
      return wanted;
    },
    update(now) {
      states = now;
      drawing?.update(states);
    },
  };
}
