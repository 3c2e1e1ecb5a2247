// Acts of people: a button, a question that says what will be done, and the answer of the operator in its own words.
//
// There is a button only if the session says that its user may do that. Whether they may is decided by the API server then,
// not here.

import { h, replace } from "./dom.js";
import { button, command, toast } from "./parts.js";

const HOLDS = [["", "until somebody releases it"], ["1", "for an hour"], ["4", "for 4 hours"], ["24", "for a day"], ["168", "for a week"]];

export const mayAct = (store, act) => (store.session?.acts ?? []).includes(act);

// `title` is on the button and above the question, `explain` is the question: what happens if they say yes.
export function actButton(context, act, { title, explain, mark = "", kind = "" }) {
  if (!mayAct(context.store, act.act)) return null;
  return button(`${title} …`, () => ask(context, act, { title, explain, kind }), { mark, kind: kind === "danger" ? "danger" : "" });
}

function ask({ api, store }, act, { title, explain, kind }) {
  const reason = h("textarea", { class: "field", id: "act-reason", name: "reason", rows: 2, maxlength: 500, placeholder: "Ticket, or why you do it" });
  const until = act.act === "hold" ? h("select", { class: "field", id: "act-until" }, HOLDS.map(([value, text]) => h("option", { value }, text))) : null;
  const message = h("div", { class: "act-message", role: "alert" });
  const yes = h("button", { type: "submit", class: ["button", "primary", kind === "danger" && "danger"] }, title);
  const no = button("Cancel", () => dialog.close());
  if (act.act === "cancel") no.lastChild.textContent = "Leave it as it is";
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
    const wish = { ...act, reason: reason.value.trim() || undefined, until: hours ? new Date(store.now() + hours * 3_600_000).toISOString() : undefined };
    try {
      const done = await api.post("acts", wish, { headers: { "X-Haulout-Csrf": store.session?.csrf ?? "" } });
      said(done);
    } catch (error) {
      yes.disabled = false;
      replace(message, h("p", { class: "tone-bad" }, error.message));
    }
  }

  function said(done) {
    toast(done.text, "good");
    const close = button("Close", () => dialog.close(), { kind: "primary" });
    replace(fields);
    replace(message, h("p", { class: "tone-good" }, done.text), done.command ? [h("p", { class: "dim small" }, "By hand it would have been:"), command(done.command)] : null);
    replace(row, close);
    close.focus();
  }
}
