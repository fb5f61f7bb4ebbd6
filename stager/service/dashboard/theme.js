// Before anything is drawn: the colours that this person chose, if any.
const chosen = localStorage.getItem("stager-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
