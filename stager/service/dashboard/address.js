// What the address says beyond the view: what is looked for. So that it can be passed on, and is there again after a step back.

export function wordsOf(hash) {
  const at = hash.indexOf("?");
  return Object.fromEntries(new URLSearchParams(at < 0 ? "" : hash.slice(at + 1)));
}

export const pathOf = (hash) => hash.split("?")[0];

export const words = () => wordsOf(location.hash);

// In the place of what was said so far, and without drawing the view anew: who types makes no history.
export function remember(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null);
  const path = pathOf(location.hash) || "#/runs";
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  if (address !== location.hash) history.replaceState(history.state, "", address);
}
