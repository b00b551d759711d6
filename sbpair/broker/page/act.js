// The page's actions on an entity: send a message, purge waiting messages, resubmit dead letters.
// A request carries a header that neither a form nor another origin can set; see dashboard_actions.
import { post } from "/ask.js";
import { count, h } from "/draw.js";

const DEAD = "/$DeadLetterQueue";
const SESSIONS = "sessions";
const FIELDS = [["message_id", "Message id"], ["session_id", "Session id"], ["subject", "Subject"], ["content_type", "Content type"]];
const doing = { writes: false, asks: "", said: "", failed: false, busy: false, focus: "" };

// Reset the panel when another entity, or another part of it, is shown.
export function forget({ keepForm = false } = {}) {
  Object.assign(doing, { writes: keepForm && doing.writes, asks: "", said: "", failed: false, focus: "" });
}

// Focus the element that the last click opened, once it is drawn.
export function refocus() {
  const wanted = doing.focus && document.getElementById(doing.focus);
  if (wanted) { wanted.focus(); doing.focus = ""; }
}

// Run one action at a time. The focus moves to its result if the button that was pressed has gone by then.
async function run(redraw, name, given, describe) {
  if (doing.busy) return;
  Object.assign(doing, { busy: true, asks: "", said: "", failed: false, focus: name === "send" ? "" : "act-said" });
  redraw();
  try {
    doing.said = describe(await post(name, given));
  } catch (error) {
    Object.assign(doing, { said: error.message, failed: true });
  }
  doing.busy = false;
  redraw();
}

const messages = (n) => `${count(n)} message${n === 1 ? "" : "s"}`;

function draft(form) {
  const given = { body: form.elements.body.value };
  for (const [name] of FIELDS) given[name] = form.elements[name].value.trim();
  const text = form.elements.properties.value.trim();
  if (text) {
    try { given.properties = JSON.parse(text); } catch { throw new Error('The application properties are not JSON, such as {"kind": "order", "attempt": 1}.'); }
  }
  return given;
}

function form(where, needsSession, redraw) {
  const submit = (event) => {
    event.preventDefault();
    let message;
    try { message = draft(event.target); } catch (error) {
      Object.assign(doing, { said: error.message, failed: true });
      return redraw();
    }
    void run(redraw, "send", { ...where, message }, ({ number }) => `Sent: number ${number}.`);
  };
  const close = () => { Object.assign(doing, { writes: false, focus: "act-send" }); redraw(); };
  return h("form", { key: "form", class: "draft", "aria-label": "Send a message", onsubmit: submit },
    h("label", { class: "all" }, "Body", h("textarea", { name: "body", id: "act-body", rows: 4, spellcheck: "false" })),
    FIELDS.map(([name, word]) => h("label", {}, word,
      h("input", { name, autocomplete: "off", required: name === "session_id" && needsSession ? "" : null, "aria-required": name === "session_id" && needsSession ? "true" : null }))),
    h("label", { class: "all" }, "Application properties, as JSON",
      h("textarea", { name: "properties", rows: 2, spellcheck: "false", placeholder: '{"kind": "order"}' })),
    h("div", { class: "all buttons" }, h("button", { class: "main" }, "Send"), h("button", { type: "button", onclick: close }, "Close")));
}

function question(text, word, yes, redraw) {
  const no = () => { Object.assign(doing, { asks: "", focus: `act-${doing.asks}` }); redraw(); };
  return h("div", { key: "question", class: "question", role: "group", "aria-label": text }, h("p", {}, text),
    h("div", { class: "buttons" }, h("button", { type: "button", id: "act-yes", class: "danger", onclick: yes }, word), h("button", { type: "button", onclick: no }, "Cancel")));
}

// One dead letter, from its row.
export function resubmitButton(namespace, path, number, redraw) {
  const go = () => void run(redraw, "resubmit", { namespace, path: path + DEAD, number }, () => `Resubmitted number ${number}.`);
  return h("p", { class: "resubmit" }, h("button", { type: "button", onclick: go }, "Resubmit"));
}

// The buttons of an entity, and the panel with what they opened or did: [buttons, panel].
export function actions({ namespace, path, part, kind, needsSession, waiting }, redraw) {
  const buttons = [], dead = part === DEAD;
  const here = { namespace, path: part === SESSIONS ? path : path + part };
  const ask = (what) => () => { Object.assign(doing, { asks: what, said: "", focus: "act-yes" }); redraw(); };
  const button = (id, word, onclick, more = {}) =>
    buttons.push(h("button", { type: "button", id, onclick, ...more }, word));
  if (!part && kind !== "subscription") {
    const open = () => { Object.assign(doing, { writes: !doing.writes, said: "", focus: doing.writes ? "" : "act-body" }); redraw(); };
    button("act-send", "Send…", open, { "aria-expanded": String(doing.writes) });
  }
  if (dead && waiting > 0) button("act-resubmit", "Resubmit all…", ask("resubmit"));
  if ((kind !== "topic" || part) && waiting > 0) button("act-purge", "Purge…", ask("purge"));
  if (!part) button("act-delete", "Delete…", ask("delete"));
  const panel = [];
  if (doing.writes && !part && kind !== "subscription") panel.push(form(here, needsSession, redraw));
  if (doing.asks === "purge") panel.push(question(
    `Delete the waiting messages (about ${count(waiting)})? This cannot be undone. Locked, scheduled and deferred messages stay.`, "Delete",
    () => void run(redraw, "purge", here, ({ deleted }) => `${messages(deleted)} deleted.`), redraw));
  if (doing.asks === "delete") panel.push(question(`Delete ${path} with all of its messages? This cannot be undone.`, "Delete",
    () => void run(redraw, "delete", { namespace, path }, () => { location.hash = "#/"; return ""; }), redraw));
  if (doing.asks === "resubmit") panel.push(question(
    `Move ${messages(waiting)} back to ${path}? Each becomes a new message there, without the dead-letter reason.`, "Resubmit",
    () => void run(redraw, "resubmit", { ...here, number: null }, ({ resubmitted }) => `${messages(resubmitted)} resubmitted.`), redraw));
  panel.push(h("p", { key: "said", id: "act-said", tabindex: "-1", class: doing.failed ? "said bad" : "said", role: doing.failed ? "alert" : "status" }, doing.busy ? "Working…" : doing.said));
  return [h("div", { class: "acts push", role: "group", "aria-label": "Actions" }, buttons), h("div", { class: "panel" }, panel)];
}
