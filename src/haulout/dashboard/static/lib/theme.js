// Runs before the first paint, so that a dark page never flashes white. Not a module: modules run too late for that.
// What was chosen is kept by the browser; without a choice the system decides.
"use strict";
try {
  const chosen = localStorage.getItem("haulout.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing shows what the system says.
}
