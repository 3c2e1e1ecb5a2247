// Runs before the first paint, so that a dark page never flashes white. Not a module: modules run too late for that.
// The choice is kept in local storage; without one the system decides.
"use strict";
try {
  const chosen = localStorage.getItem("haulout.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the system decides.
}
