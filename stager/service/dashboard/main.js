// The page: which view is shown, the token, the colours. A view is a function (place, parts of the address, signal) that draws itself and
// goes on until the signal says that another one has come.

import { pathOf } from "./address.js";
import * as api from "./api.js";
import { el, say, show } from "./dom.js";
import { jobView } from "./job.js";
import { nodesView } from "./nodes.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";

const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
let shown = new AbortController();
let first = true;

// [pattern, view, title]; the parts of an address are names of runs and jobs.
const ROUTES = [
  [/^#\/runs\/([^/]+)\/jobs\/([^/]+)$/, jobView, (run, job) => `${job} of ${run}`],
  [/^#\/runs\/([^/]+)$/, runView, (run) => run],
  [/^#\/nodes$/, nodesView, () => "nodes"],
  [/^(?:#\/runs)?\/?$/, runsView, () => "runs"],
];

function routed() {
  for (const [pattern, view, title] of ROUTES) {
    const found = pattern.exec(pathOf(location.hash));
    if (found === null) continue;
    try {
      const parts = found.slice(1).map(decodeURIComponent);
      return [view, parts, title(...parts)];
    } catch {
      break;
    }
  }
  return [strangeView, [], "not found"];
}

async function strangeView(place) {
  place.replaceChildren(el("h1", {}, "There is no such page"), el("p", {}, el("a", { href: "#/runs" }, "All runs")));
}

export const page = {
  // What the view cannot do just now; empty: it can again.
  trouble(text) {
    say(trouble, text);
    show(trouble, text !== "");
  },
  // What a part of the view met that no asking again mends: the token is not good, the run is gone.
  failed,
  // For those who cannot see that something has changed.
  tell(text) {
    say(document.getElementById("told"), text);
  },
};

async function draw() {
  shown.abort();
  shown = new AbortController();
  page.trouble("");
  const signedIn = api.token() !== "";
  show(document.getElementById("forget"), signedIn);
  show(document.getElementById("views"), signedIn);
  const [view, parts, title] = signedIn ? routed() : [signInView, [""], "sign in"];
  document.title = `${title} · stager`;
  for (const link of document.querySelectorAll("#views a")) {
    const here = signedIn && (location.hash || "#/runs").startsWith(link.getAttribute("href"));
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const { signal } = shown;
  if (!first) window.scrollTo(0, 0);
  const drawing = view(main, parts, signal, page);
  const heading = main.querySelector("h1");
  if (!first && heading !== null) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
  first = false;
  try {
    await drawing;
  } catch (problem) {
    if (!signal.aborted) failed(problem);
  }
}

function failed(problem) {
  if (problem.status === 401) return signOut("This token is not good: unknown, expired or revoked.");
  if (problem.status === 404) {
    main.replaceChildren(el("h1", { tabindex: "-1" }, "Not found"), el("p", {}, problem.message), el("p", {}, el("a", { href: "#/runs" }, "All runs")));
    return;
  }
  page.trouble(problem.message);
  if (!(problem instanceof api.Problem)) throw problem;
}

function signOut(why = "") {
  api.forget();
  shown.abort();
  shown = new AbortController();
  show(document.getElementById("forget"), false);
  show(document.getElementById("views"), false);
  document.title = "sign in · stager";
  page.trouble("");
  signInView(main, [why]);
  main.querySelector("input").focus();
}

async function signInView(place, [why]) {
  const secret = el("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-about token-wrong" });
  const wrong = el("p", { id: "token-wrong", class: "alert", role: "alert", hidden: why === "" }, why);
  const form = el("form", { class: "sign-in" },
    el("h1", {}, "Runs and their data"),
    el("label", { for: "token" }, "Token"), secret,
    el("p", { id: "token-about", class: "note" }, "One of ", el("code", {}, "stager token create"), "; the scope read is enough. It is kept until this tab is closed, and nowhere else."),
    wrong, el("button", { type: "submit" }, "Show my runs"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    api.keep(secret.value.trim());
    try {
      await api.get("/runs?limit=1");
      await draw();
    } catch (problem) {
      api.forget();
      say(wrong, problem.status === 401 ? "This token is not good: unknown, expired or revoked." : problem.message);
      show(wrong, true);
      secret.focus();
    }
  });
  place.replaceChildren(form);
}

document.getElementById("forget").addEventListener("click", () => signOut());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

const theme = document.getElementById("theme");
theme.value = document.documentElement.dataset.theme ?? "auto";
theme.addEventListener("change", () => {
  if (theme.value === "auto") {
    localStorage.removeItem("stager-theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("stager-theme", theme.value);
    document.documentElement.dataset.theme = theme.value;
  }
});

window.addEventListener("hashchange", draw);
draw();
