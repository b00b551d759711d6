// What the page does with a namespace: take it down and bring it up, set and clear faults, show its connection string,
// create and delete entities.
import { ask, post } from "/ask.js";
import { badge, count, h } from "/draw.js";

const OUTAGES = [["refuse", "Refuse", "The port is closed."], ["reset", "Reset", "Connections are reset at once."],
  ["silent", "Silent", "Nothing is answered."], ["slow", "Slow", "Each answer comes 0.2 s late."],
  ["half-open", "Half-open", "Open connections go silent; new ones work."]];
const doing = { namespace: "", opens: "", said: "", failed: false, busy: false, focus: "", string: "" };

export const faultsOf = (namespace) => ask("faults", { namespace });

// Focus the element that the last click opened, once it is drawn.
export function refocusOperation() {
  const wanted = doing.focus && document.getElementById(doing.focus);
  if (wanted) { wanted.focus(); doing.focus = ""; }
}

async function run(redraw, namespace, name, given, describe) {
  if (doing.busy) return false;
  Object.assign(doing, { namespace, busy: true, said: "", failed: false });
  redraw();
  try {
    const reply = await post(name, { namespace, ...given });
    Object.assign(doing, { opens: "", said: describe(reply), focus: `said-${namespace}` });
  } catch (error) {
    Object.assign(doing, { said: error.message, failed: true });
  }
  doing.busy = false;
  redraw();
  return !doing.failed;
}

function select(name, label, options) {
  return h("label", {}, label, h("select", { name, id: `op-${name}` }, options.map(([value, word]) => h("option", { value }, word))));
}

function input(name, label, more = {}) {
  return h("label", {}, label, h("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
}

function form(title, word, fields, submit, close) {
  return h("form", { key: title, class: "draft", "aria-label": title, onsubmit: (event) => { event.preventDefault(); submit(event.target.elements); } },
    fields, h("div", { class: "all buttons" }, h("button", { class: "main" }, word), h("button", { type: "button", onclick: close }, "Close")));
}

async function showString(namespace, redraw) {
  let text = "";
  const shown = await run(redraw, namespace, "connection-string", {}, (reply) => { text = reply.connection_string; return "The connection string, with its key:"; });
  if (!shown) return;
  Object.assign(doing, { opens: "string", string: text });
  try {
    await navigator.clipboard.writeText(text);
    doing.said = "Copied. The connection string, with its key:";
  } catch { /* the browser does not allow it: it is selected to be copied by hand */ }
  doing.focus = `string-${namespace}`;
  redraw();
}

function faultRows(namespace, faults, redraw) {
  if (!faults.rows.length) return null;
  return h("ul", { class: "faults", "aria-label": `Faults of ${namespace}` }, faults.rows.map((each) => h("li", { key: `f${each.number}` },
    badge(each.effect, "warn"), h("span", { class: "path" }, each.entity ?? "all entities"), h("span", { class: "quiet small" }, `${count(each.hits)} hits`),
    h("button", { type: "button", onclick: () => void run(redraw, namespace, "clear-fault", { number: each.number }, () => `Cleared: ${each.effect}.`) }, "Clear"))));
}

function opened(namespace, faults, redraw) {
  const close = () => { Object.assign(doing, { opens: "", focus: `op-${doing.opens}-${namespace}` }); redraw(); };
  switch (doing.opens) {
    case "down": return h("div", { key: "down", class: "question", role: "group", "aria-label": `How ${namespace} fails` },
      h("div", { class: "buttons" }, OUTAGES.map(([how, word, title], i) => h("button", { type: "button", class: "danger", title, id: i ? null : "op-first",
        onclick: () => void run(redraw, namespace, "take-down", { how }, () => `Down: ${title}`) }, word)),
      h("button", { type: "button", onclick: close }, "Cancel")));
    case "fault": return form("Set a fault", "Set", [
      select("choice", "What happens", faults.choices.map((each) => [each.value, `${each.value.split(":")[1]}: ${each.text}`])),
      input("entity", "Entity, or a pattern with *; empty for all", { id: "op-first" })],
      (given) => void run(redraw, namespace, "set-fault", { choice: given.choice.value, entity: given.entity.value.trim() }, (reply) => `Set: ${count(reply.set)} fault${reply.set === 1 ? "" : "s"}.`), close);
    case "create": return form("Create an entity", "Create", [
      select("kind", "Kind", [["queue", "Queue"], ["topic", "Topic"], ["subscription", "Subscription"]]),
      input("path", "Path; a subscription's is TOPIC/Subscriptions/NAME", { id: "op-first", required: "" }),
      h("label", {}, "Sessions", h("input", { type: "checkbox", name: "sessions" }))],
      (given) => void run(redraw, namespace, "create", { kind: given.kind.value, path: given.path.value.trim(), sessions: given.sessions.checked }, (reply) => `Created: ${reply.path}.`), close);
    case "string": return h("p", { key: "string", class: "string" }, h("input", { id: `string-${namespace}`, readonly: "", value: doing.string,
      "aria-label": `Connection string of ${namespace}`, onfocus: (event) => event.target.select() }));
    default: return null;
  }
}

// The buttons of a namespace, and what they opened or did.
export function operations(each, faults, redraw) {
  const namespace = each.name, isHere = doing.namespace === namespace;
  const open = (what) => () => {
    const closes = isHere && doing.opens === what;
    Object.assign(doing, { namespace, opens: closes ? "" : what, said: "", failed: false, focus: closes ? "" : "op-first" });
    redraw();
  };
  const button = (id, word, onclick) => h("button", { type: "button", id: `op-${id}-${namespace}`, onclick,
    "aria-expanded": ["down", "fault", "create"].includes(id) ? String(isHere && doing.opens === id) : null }, word);
  return h("div", { class: "operations" },
    faultRows(namespace, faults, redraw),
    h("div", { class: "acts", role: "group", "aria-label": `Operate ${namespace}` },
      each.state === "up" ? button("down", "Take down…", open("down"))
        : button("up", "Bring up", () => void run(redraw, namespace, "bring-up", {}, () => "Up again.")),
      button("fault", "Set a fault…", open("fault")), button("create", "New entity…", open("create")),
      button("string", "Copy connection string", () => void showString(namespace, redraw))),
    h("p", { id: `said-${namespace}`, tabindex: "-1", class: isHere && doing.failed ? "said bad" : "said", role: isHere && doing.failed ? "alert" : "status" },
      isHere ? (doing.busy ? "Working…" : doing.said) : ""),
    isHere ? opened(namespace, faults, redraw) : null);
}
