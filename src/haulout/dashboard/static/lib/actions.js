// Actions: a button, a dialog that says what will be done, and the response of the operator.
//
// A button is shown only if the session lists the action. The API server authorizes it, not the page.

import { h, replace } from "./dom.js";
import { button, command, toast } from "./components.js";

const HOLDS = [["", "until it is released"], ["1", "for an hour"], ["4", "for 4 hours"], ["24", "for a day"], ["168", "for a week"]];

export const mayAct = (store, action) => (store.session?.actions ?? []).includes(action);

// `title` is the text of the button and the dialog; `explain` says what happens on confirmation.
export function actionButton(context, action, { title, explain, mark = "", kind = "" }) {
  if (!mayAct(context.store, action.action)) return null;
  return button(`${title} …`, () => ask(context, action, { title, explain, kind }), { mark, kind: kind === "danger" ? "danger" : "" });
}

function ask({ api, store }, action, { title, explain, kind }) {
  const reason = h("textarea", { class: "field", id: "act-reason", name: "reason", rows: 2, maxlength: 500, placeholder: "Ticket or reason" });
  const until = action.action === "hold" ? h("select", { class: "field", id: "act-until" }, HOLDS.map(([value, text]) => h("option", { value }, text))) : null;
  const message = h("div", { class: "act-message", role: "alert" });
  const yes = h("button", { type: "submit", class: ["button", "primary", kind === "danger" && "danger"] }, title);
  const no = button("Cancel", () => dialog.close());
  if (action.action === "cancel") no.lastChild.textContent = "Keep it";
  const row = h("div", { class: "row act-buttons" }, no, yes);
  const fields = h(
    "div",
    { class: "act-fields" },
    until ? [h("label", { for: "act-until" }, "How long"), until] : null,
    h("label", { for: "act-reason" }, "Reason ", h("span", { class: "dim" }, "for the history")),
    reason,
  );
  const form = h("form", { class: "act-form", onsubmit: send }, h("h2", { id: "act-title" }, title), h("p", {}, explain), fields, message, row);
  const dialog = h("dialog", { class: "act", "aria-labelledby": "act-title", onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();

  async function send(event) {
    event.preventDefault();
    yes.disabled = true;
    replace(message);
    const hours = Number(until?.value);
    const request = { ...action, reason: reason.value.trim() || undefined, until: hours ? new Date(store.now() + hours * 3_600_000).toISOString() : undefined };
    try {
      const response = await api.post("actions", request, { headers: { "X-Haulout-Csrf": store.session?.csrf ?? "" } });
      showResponse(response);
    } catch (error) {
      yes.disabled = false;
      replace(message, h("p", { class: "tone-bad" }, error.message));
    }
  }

  function showResponse(response) {
    toast(response.message, "good");
    const close = button("Close", () => dialog.close(), { kind: "primary" });
    replace(fields);
    replace(message, h("p", { class: "tone-good" }, response.message), response.command ? [h("p", { class: "dim small" }, "Equivalent command:"), command(response.command)] : null);
    replace(row, close);
    close.focus();
  }
}
