// The I/O nodes: what fills each, and what of it could go for room.

import { get } from "./api.js";
import { el, say, setBadge, show, svg } from "./dom.js";
import { percent, size } from "./format.js";
import { poll } from "./keeping.js";

const EVERY_MS = 2000;
const WIDTH = 1000;
const PARTS = [
  ["pinned", "Pinned", "jobs or transfers use it just now"],
  ["dirty", "Dirty", "made here and nowhere else yet: it cannot be dropped"],
  ["clean", "Clean", "can be had again, and goes first for room"],
  ["reserved", "Reserved", "set aside for what is on its way or will be made"],
  ["free", "Free", ""],
];

function card(node) {
  const title = el("h2", {}, node.node);
  const state = el("span", { class: "badge" });
  const about = el("p", { class: "note" });
  const shapes = new Map(PARTS.map(([part, name]) => [part, svg("rect", { class: part, y: 0, height: 34, x: 0, width: 0 }, svg("title", {}, name))]));
  const bar = svg("svg", { viewBox: `0 0 ${WIDTH} 34`, role: "img", class: "occupancy", preserveAspectRatio: "none" }, ...shapes.values());
  const cells = new Map();
  const rows = PARTS.map(([part, name, why]) => {
    const bytes = el("td", { class: "number" });
    const share = el("td", { class: "number" });
    cells.set(part, [bytes, share]);
    return el("tr", { "data-part": part }, el("th", { scope: "row" }, el("i", { class: `key ${part}` }), name, why ? el("span", { class: "under" }, why) : null), bytes, share);
  });
  const head = el("tr", {}, ["What", "Bytes", "Of capacity"].map((text, at) => el("th", { scope: "col", class: at ? "number" : "" }, text)));
  const figures = el("table", { class: "plain" }, el("caption", { class: "hush" }, `What fills ${node.node}`), el("thead", {}, head), el("tbody", {}, rows));
  const element = el("section", { class: "card", "data-node": node.node }, el("div", { class: "line" }, title, state), about, bar, figures);
  return {
    element,
    update(now) {
      setBadge(state, now.state === "up" || !now.state ? (now.connected ? "connected" : "away") : now.state);
      const held = now.occupancy;
      show(figures, held !== null);
      if (now.state === "gone") return say(about, `Forgotten: ${now.why}`);
      if (held === null) return say(about, now.problem || "The scheduler has not met it yet.");
      const taken = `${size(held.capacity_bytes)} in all, ${percent(1 - held.free_bytes / Math.max(1, held.capacity_bytes))} taken`;
      say(about, now.state === "draining" ? `${taken}; would be lost with it now: ${now.unsafe_files} files (${size(now.unsafe_bytes)}), ${now.unsafe_jobs} running jobs` : taken);
      let left = 0;
      for (const [part] of PARTS) {
        const share = held[`${part}_bytes`] / Math.max(1, held.capacity_bytes);
        shapes.get(part).setAttribute("x", left * WIDTH);
        shapes.get(part).setAttribute("width", Math.max(0, share) * WIDTH);
        left += share;
        say(cells.get(part)[0], size(held[`${part}_bytes`]));
        say(cells.get(part)[1], percent(share));
      }
      bar.setAttribute("aria-label", PARTS.map(([part, name]) => `${name} ${size(held[`${part}_bytes`])}`).join(", "));
      return undefined;
    },
  };
}

export async function nodesView(place, _, signal, page) {
  const list = el("div", { class: "nodes" });
  place.replaceChildren(el("h1", {}, "Nodes"), list);
  const cards = new Map();
  await poll(page, signal, EVERY_MS, async () => {
    const { nodes } = await get("/nodes", signal);
    for (const node of nodes) {
      if (!cards.has(node.node)) {
        cards.set(node.node, card(node));
        list.append(cards.get(node.node).element);
      }
      cards.get(node.node).update(node);
    }
  });
}
