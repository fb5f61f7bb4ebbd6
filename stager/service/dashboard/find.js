// A field to look for something by its name, and a choice of states beside it. `/` goes to it from anywhere on the page.

import { el } from "./dom.js";
import { words } from "./format.js";

const STILL_MS = 250;
const TYPED_INTO = "input, select, textarea, [contenteditable]";

// `changed(asked)`: the person asks for something else; `asked` is which of the two, "text" or "state".
export function finder(id, label, states, changed, signal) {
  const text = el("input", { type: "search", id: `${id}-find`, placeholder: "a part of the name", autocomplete: "off", spellcheck: "false", maxlength: 500, "aria-keyshortcuts": "/", enterkeyhint: "search" });
  const state = el("select", { id: `${id}-state` }, el("option", { value: "" }, "all states"), states.map((each) => el("option", { value: each }, words(each))));
  let still = 0;
  const ask = (waitMs) => {
    clearTimeout(still);
    still = setTimeout(() => {
      if (!signal.aborted) changed("text");
    }, waitMs);
  };
  text.addEventListener("input", () => ask(STILL_MS));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter") ask(0);
  });
  state.addEventListener("change", () => changed("state"));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(TYPED_INTO)) return;
    event.preventDefault();
    text.focus();
    text.select();
  }, { signal });
  return {
    text,
    state,
    parts: [el("label", { for: `${id}-find` }, label), text, el("label", { for: `${id}-state`, class: "hush" }, `${label}: state`), state],
  };
}
