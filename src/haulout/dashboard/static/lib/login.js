// Who looks: where the operator wants to know, a dialog asks for a token, and the header says who is logged in.
//
// The browser keeps the token as a cookie that no script can read: it is gone from here as soon as it was sent.

import { h, replace } from "./dom.js";
import { button } from "./parts.js";

// `place` is where the header has room for it.
export function showSession({ mode, user = "", mayRead = false }, { api, place }) {
  if (mode !== "token") return replace(place, user ? h("span", { class: "only-wide dim", title: "Who you are" }, h("bdi", {}, user)) : null);
  if (user) replace(place, h("button", { type: "button", class: "button quiet", title: `You are ${user}`, onclick: () => logOut(api) }, "Log out"));
  else replace(place, h("button", { type: "button", class: "button quiet", onclick: () => ask(api, "") }, "Log in"));
  if (!mayRead) ask(api, user);
}

function ask(api, user) {
  if (document.getElementById("login-token")) return;
  const why = user ? `${user} may not look at this dashboard: haulout-dashboard-viewer is the role that lets them.` : "This dashboard wants to know who looks.";
  const field = h("input", { class: "field", id: "login-token", name: "token", type: "password", autocomplete: "off", spellcheck: "false", required: "" });
  const message = h("div", { class: "act-message", role: "alert" });
  const yes = h("button", { type: "submit", class: ["button", "primary"] }, "Log in");
  const label = h("label", { for: "login-token" }, "A token of Kubernetes ", h("span", { class: "dim" }, "as kubectl create token NAME prints one"));
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
