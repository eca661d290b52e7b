// Before the first paint, so that the page does not flash in the other colours.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("fusehash-theme"); } catch { /* storage may be forbidden */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
