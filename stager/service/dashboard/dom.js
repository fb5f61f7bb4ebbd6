// Elements are made here and nowhere else. The one rule: a text becomes a text node; nothing is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const el = (name, attributes, ...children) => filled(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

// Only what differs is touched: what has the focus or is selected stays.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

export function badge(state) {
  return el("span", { class: `badge ${state}` }, state.replaceAll("_", " "));
}

export function setBadge(element, state) {
  if (element.className !== `badge ${state}`) element.className = `badge ${state}`;
  say(element, state.replaceAll("_", " "));
}

// A table whose rows stay where they are while their figures change. `columns`: [title, kind of cell]; `make(item)` gives a row's cells,
// `update(cells, item)` fills them. Roles are said, since narrow screens lay rows out as cards.
export function table(caption, columns, key, make, update) {
  const head = el("tr", { role: "row" }, columns.map(([title, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, title)));
  const body = el("tbody", { role: "rowgroup" });
  const element = el("table", { role: "table", class: "cards" }, el("caption", { class: "hush" }, caption), el("thead", { role: "rowgroup" }, head), body);
  const rows = new Map();
  function set(items) {
    const wanted = new Set(items.map(key));
    for (const [name, known] of rows) {
      if (!wanted.has(name)) {
        known.row.remove();
        rows.delete(name);
      }
    }
    items.forEach((item, at) => {
      let known = rows.get(key(item));
      if (known === undefined) {
        const cells = make(item).map((content, column) =>
          el("td", { role: "cell", class: columns[column][1], "data-title": columns[column][0] }, content));
        known = { row: el("tr", { role: "row" }, cells), cells };
        rows.set(key(item), known);
      }
      update(known.cells, item);
      if (body.children[at] !== known.row) body.insertBefore(known.row, body.children[at] ?? null);
    });
  }
  return { element, set, size: () => rows.size };
}

// Figures with their names.
export function figures(names) {
  const values = new Map();
  const element = el("dl", { class: "figures" }, names.map(([name, title]) => {
    const value = el("dd", {}, "—");
    const more = el("dd", { class: "more" });
    values.set(name, [value, more]);
    return el("div", { "data-figure": name }, el("dt", {}, title), value, more);
  }));
  return {
    element,
    set(name, text, detail = "") {
      say(values.get(name)[0], text);
      say(values.get(name)[1], detail);
    },
  };
}

export const section = (id, title, ...children) => el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
