// Login: if the operator requires it, a dialog asks for a token, and the header shows who is logged in.
//
// The browser keeps the token as an HttpOnly cookie; the page does not keep it after sending it.

import { h, replace } from "./dom.js";
import { button } from "./components.js";

// `place` is an element in the header.
export function showSession({ mode, user = "", mayRead = false }, { api, place }) {
  if (mode !== "token") return replace(place, user ? h("span", { class: "only-wide dim", title: "Your user name" }, h("bdi", {}, user)) : null);
  if (user) replace(place, h("button", { type: "button", class: "button quiet", title: `You are ${user}`, onclick: () => logOut(api) }, "Log out"));
  else replace(place, h("button", { type: "button", class: "button quiet", onclick: () => ask(api, "") }, "Log in"));
  if (!mayRead) ask(api, user);
}

function ask(api, user) {
  if (document.getElementById("login-token")) return;
  const why = user ? `${user} is not allowed to view this dashboard: bind ClusterRole haulout-dashboard-viewer to this user.` : "This dashboard requires a login.";
  const field = h("input", { class: "field", id: "login-token", name: "token", type: "password", autocomplete: "off", spellcheck: "false", required: "" });
  const message = h("div", { class: "act-message", role: "alert" });
  const yes = h("button", { type: "submit", class: ["button", "primary"] }, "Log in");
  const label = h("label", { for: "login-token" }, "Kubernetes token ", h("span", { class: "dim" }, "as printed by kubectl create token NAME"));
  const row = h("div", { class: "row act-buttons" }, button("Not now", () => dialog.close()), yes);
  const form = h("form", { class: "act-form", onsubmit: send }, h("h2", { id: "login-title" }, "Log in"), h("p", {}, h("bdi", {}, why)), h("div", { class: "act-fields" }, label, field), message, row);
  const dialog = h("dialog", { class: "act", "aria-labelledby": "login-title", onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
  field.focus();

  async function send(event) {
    event.preventDefault();
    yes.disabled = true;
    replace(message);
    try {
      await api.post("session", { token: field.value.trim() });
      location.reload();
    } catch (error) {
      yes.disabled = false;
      replace(message, h("p", { class: "tone-bad" }, error.message));
      field.select();
    }
  }
}

async function logOut(api) {
  await api.answer(api.address("session"), { method: "DELETE" }).catch(() => {});
  location.reload();
}
