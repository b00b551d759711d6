// The broker's page: polls once a second while it is visible, and changes only the elements that differ.
// Data from the broker goes into text nodes, never into markup.
import { ask } from "/ask.js";
import { actions, forget, refocus, resubmitButton } from "/act.js";
import { badge, bytes, count, h, legend, morph, plot, span, spark, table, time, when } from "/draw.js";
import { faultsOf, operations, refocusOperation } from "/operate.js";
import { storyCard } from "/story.js";

const EVERY = 1000;
const state = { paused: false, find: {}, skip: {}, part: "", from: 1, open: null, message: null, sought: "" };
const main = document.getElementById("main");
const live = document.getElementById("live");
const pause = document.getElementById("pause");

const perSecond = (samples, index) =>
  samples.slice(1).map(([at, values], i) => {
    const [before, earlier] = samples[i];
    return [at, Math.max(0, ((values[index] - earlier[index]) * 1000) / Math.max(1, at - before))];
  });
const level = (samples, index) => samples.map(([at, values]) => [at, values[index]]);
const last = (series) => (series.length ? series[series.length - 1][1] : 0);
const link = (namespace, path) => `#/entity/${encodeURIComponent(namespace)}/${encodeURIComponent(path)}`;

// -- overview

function figure(name, value, note = "", tone = "") {
  return h("div", {}, h("dt", {}, name), h("dd", { class: tone }, value, note && h("small", {}, note)));
}

function namespaceCard(each, set) {
  const up = each.state === "up";
  const sent = perSecond(each.history, 0);
  const received = perSecond(each.history, 1);
  const rejecting = perSecond(each.history, 2);
  const faults = each.faults.length;
  return h("section", { class: "card", "aria-label": `Namespace ${each.name}` },
    h("div", { class: "head" },
      h("h2", {}, each.name),
      badge(up ? "Up" : each.state.replace("down", "Down"), up ? "good" : "bad"),
      faults > 0 && badge(`${count(faults)} fault${faults > 1 ? "s" : ""} set`, "warn"),
      each.stores_down.length > 0 && badge(`Stores failing: ${each.stores_down.join(", ")}`, "bad"),
      h("span", { class: "quiet small push" }, `${each.tier} · port ${each.port}`)),
    h("div", { class: "body" },
      h("dl", { class: "figures" },
        figure("Sent", count(each.operations.sends)),
        figure("Received", count(each.operations.receives)),
        figure("Rejected", count(each.rejected), "", each.rejected ? "bad" : ""),
        figure("Connections", count(each.connections)),
        each.operations.pings > 0 && figure("Pings", count(each.operations.pings), " of paired clients")),
      h("figure", { class: "plot" },
        legend(["Sent", `${count(Math.round(last(sent)))}/s`, ""], ["Received", `${count(Math.round(last(received)))}/s`, "second"],
          ["Rejected", `${count(Math.round(last(rejecting)))}/s`, "bad"]),
        plot([[sent, ""], [received, "second"], [rejecting, "bad"]], `Messages a second in ${each.name}`, "/s")),
      operations(each, set, soon)));
}

function entityRow(namespace, row) {
  const { counts } = row;
  const share = Math.min(1, counts.size_in_bytes / Math.max(1, row.quota));
  const number = (value, tone = "", more = "") =>
    h("td", { class: `${value ? "n" : "n zero"} ${more}`.trim() }, tone && value ? h("b", { class: tone }, count(value)) : count(value));
  return h("tr", { key: row.path, class: row.kind === "subscription" ? "sub" : "" },
    h("th", { scope: "row", class: "path" },
      h("a", { href: link(namespace, row.path) }, row.kind === "subscription" ? row.path.split("/Subscriptions/").pop() : row.path),
      h("div", { class: "under" },
        h("span", { class: "tag" }, row.kind),
        row.flags.map((flag) => h("span", { class: "tag" }, flag)),
        row.forward_to && h("span", { class: "tag" }, `to ${row.forward_to}`))),
    h("td", { class: "narrow" }, spark(level(row.history, 0), `Messages in ${row.path} recently`)),
    number(counts.active), number(counts.scheduled, "", "narrow"), number(counts.deferred, "", "narrow"),
    number(counts.dead_letter + counts.transfer_dead_letter, "bad"),
    h("td", { class: "n narrow" }, h("span", { class: "wide" }, bytes(counts.size_in_bytes)), meter(share)),
    h("td", {}, health(row)));
}

function meter(share) {
  return h("svg", { class: share > 0.9 ? "meter full" : "meter", viewBox: "0 0 100 6", preserveAspectRatio: "none",
    role: "img", "aria-label": `${Math.round(share * 100)} % of its maximum size` },
    h("rect", { width: share > 0 ? Math.max(1.5, share * 100) : 0, height: 6 }));
}

function health(row) {
  if (row.status !== "Active") return badge(row.status.replace("Disabled", " disabled").trim(), "warn");
  const words = { up: ["Active", "good"], limited: ["Limited", "warn"], throttled: ["Throttled", "warn"], down: ["Down", "bad"] };
  return badge(...words[row.health]);
}

function entitiesCard(namespace, page) {
  const heads = ["Entity", "#narrow Recent", ">Active", "#narrow >Scheduled", "#narrow >Deferred", ">Dead letters", "#narrow >Size", "State"];
  const field = h("input", { type: "search", id: `find-${namespace}`, placeholder: "Find a path…", "aria-label": `Find an entity of ${namespace}`,
    oninput: (event) => { state.find[namespace] = event.target.value; state.skip[namespace] = 0; soon(); } });
  const shown = page.rows.length;
  const step = (by, word) => h("button", { type: "button", onclick: () => { state.skip[namespace] = page.skip + by; soon(); } }, word);
  return h("section", { class: "card", key: namespace, "aria-label": `Entities of ${namespace}` },
    h("div", { class: "head" }, h("h2", {}, namespace),
      h("span", { class: "quiet" }, `${count(page.total)} ${page.total === 1 ? "entity" : "entities"}`), h("span", { class: "push" }, field)),
    shown ? table(`Entities of ${namespace} with their counts`, heads, page.rows.map((row) => entityRow(namespace, row)))
      : h("p", { class: "empty" }, state.find[namespace] ? "No path matches." : "No entities yet: create a queue or a topic."),
    page.total > page.most && h("div", { class: "foot" },
      h("span", { class: "quiet small" }, `${page.skip + 1} to ${page.skip + shown} of ${count(page.total)}`),
      page.skip > 0 && step(-page.most, "Previous"), page.skip + shown < page.total && step(page.most, "Next")));
}

async function overview() {
  const summary = await ask("overview");
  const names = summary.namespaces.map((each) => each.name);
  const [pages, set] = await Promise.all([
    Promise.all(names.map((namespace) => ask("entities", { namespace, skip: state.skip[namespace] || 0, find: state.find[namespace] || "" }))),
    Promise.all(names.map(faultsOf))]);
  return [summary, [
    h("div", { class: "grid" }, summary.namespaces.map((each, i) => namespaceCard(each, set[i]))),
    (summary.story || names.length > 1) && storyCard(summary.story),
    ...names.map((name, i) => entitiesCard(name, pages[i])),
  ]];
}

// -- one entity

const SESSIONS = "sessions";
const PARTS = [["", "Messages"], ["/$DeadLetterQueue", "Dead letters"], ["/$Transfer/$DeadLetterQueue", "Not transferred"]];

function setting(name, value, isSpan) {
  let text = value === null ? "never" : String(value);
  if (isSpan && value !== null) text = span(value);
  else if (value === null && !isSpan) text = "none";
  else if (typeof value === "boolean") text = value ? "yes" : "no";
  return h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, text));
}

function messageRows(namespace, path, each) {
  const isOpen = state.open === each.number;
  const toggle = () => { state.open = isOpen ? null : each.number; state.message = null; soon(); };
  const anywhere = (event) => { if (!event.target.closest("a, button") && !String(getSelection())) toggle(); };
  const row = h("tr", { key: `m${each.number}`, class: isOpen ? "opens open" : "opens", onclick: anywhere },
    h("td", {}, h("button", { type: "button", class: "row-button mono", "aria-expanded": String(isOpen), onclick: toggle }, String(each.number))),
    h("td", { class: "mono path" }, each.message_id),
    h("td", {}, badge(each.state, { locked: "warn", active: "", scheduled: "", deferred: "" }[each.state] ?? ""),
      each.reason && h("div", { class: "small why" }, h("b", {}, each.reason), each.why ? ` · ${each.why}` : "")),
    h("td", { class: "narrow" }, each.session_id ?? ""),
    h("td", { class: "wide" }, time(each.enqueued_at)),
    h("td", { class: "n narrow" }, count(each.deliveries)),
    h("td", { class: "n narrow wide" }, bytes(each.size)));
  if (!isOpen) return [row];
  return [row, h("tr", { key: `d${each.number}`, class: "more" }, h("td", { colspan: 7 }, messageDetail(state.message),
    state.part === PARTS[1][0] && each.state === "active" && resubmitButton(namespace, path, each.number, soon)))];
}

function values(title, rows) {
  if (!rows.length) return null;
  return h("div", {}, h("h3", {}, title), h("dl", {}, rows.flatMap((each) => [
    h("dt", { title: each.type }, each.name), h("dd", {}, each.text)])));
}

function pretty(body) {
  if (!/^\s*[[{]/.test(body.text || "") || !body.is_whole) return body.hex ?? body.text;
  try { return JSON.stringify(JSON.parse(body.text), null, 2); } catch { return body.text; }
}

function messageDetail(message) {
  if (!message) return h("p", { class: "quiet" }, "Loading…");
  if (message.error) return h("p", {}, message.error);
  const { body } = message;
  return h("div", { class: "message" },
    h("div", { class: "body" },
      h("h3", {}, `Body · ${body.kind} · ${bytes(body.size)}${body.is_whole ? "" : " · truncated"}`),
      body.kind === "none" ? h("p", { class: "quiet" }, "No body.") : h("pre", { tabindex: 0 }, pretty(body))),
    values("Properties", message.properties), values("Application properties", message.application_properties),
    values("Header", message.header), values("Annotations", message.annotations));
}

function sessionsTable(held, turn) {
  if (!held.rows.length) return h("p", { class: "empty" }, "No session has messages, state or a holder.");
  const rows = held.rows.map((each) => h("tr", { key: `s${each.id}` },
    h("th", { scope: "row", class: "mono path" }, each.id), h("td", { class: "n" }, count(each.messages)),
    h("td", { class: "path" }, each.locked_until ? ["locked until ", time(each.locked_until), each.holder && h("div", { class: "small quiet" }, `by ${each.holder}`)] : "free"),
    h("td", { class: "path" }, each.state === null ? "none" : [`${bytes(each.state_size)}, set `, time(each.state_set_at),
      h("div", { class: "small mono" }, each.state.hex ?? each.state.text)])));
  const end = held.skip + held.rows.length;
  return [table("Sessions", ["Session", ">Messages", "Lock", "State"], rows),
    held.total > held.most && h("div", { class: "foot" },
      h("span", { class: "quiet small" }, `${held.skip + 1} to ${end} of ${count(held.total)}`),
      held.skip > 0 && h("button", { type: "button", onclick: () => turn(1) }, "First page"),
      end < held.total && h("button", { type: "button", onclick: () => turn(end + 1) }, "Next page"))];
}

async function entity(namespace, path) {
  const { part } = state;
  const query = { namespace, path };
  const [summary, it, page, held] = await Promise.all([ask("overview"), ask("entity", query),
    part === SESSIONS ? { messages: [], most: 0 } : ask("messages", { namespace, path: path + part, from: state.from, find: state.sought })
      .catch((error) => { if (error.status === 404) return { messages: [], most: 50 }; throw error; }),
    ask("sessions", { ...query, skip: part === SESSIONS ? state.from - 1 : 0 })]);
  const { open } = state;
  if (open !== null && !state.message) {
    const message = await ask("message", { namespace, path: path + part, number: open })
      .catch((error) => ({ error: error.message }));
    if (state.open === open) state.message = message; // else another message was opened meanwhile
  }
  const { counts } = it;
  const turn = (to) => { state.from = to; state.open = state.message = null; soon(); };
  const pick = (to) => { state.part = to; forget({ keepForm: true }); turn(1); };
  const end = page.next ? page.next - 1 : page.messages.length ? page.messages[page.messages.length - 1].number : 0;
  const seek = h("input", { type: "search", id: "seek", placeholder: "Find in messages…", "aria-label": "Find in ids, reasons and bodies",
    oninput: (event) => { state.sought = event.target.value; state.from = 1; state.open = state.message = null; soon(); } });
  const tabs = it.needs_sessions ? [...PARTS, [SESSIONS, "Sessions"]] : PARTS;
  const numbers = { [SESSIONS]: held.total, "": counts.active + counts.scheduled + counts.deferred, [PARTS[1][0]]: counts.dead_letter, [PARTS[2][0]]: counts.transfer_dead_letter };
  const waiting = { "": counts.active, [SESSIONS]: 0 }[part] ?? numbers[part];
  const [buttons, panel] = actions({ namespace, path, part, kind: it.kind, needsSession: it.needs_sessions, waiting }, soon);
  return [summary, [
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), ` / ${namespace}`),
    h("section", { class: "card", "aria-label": path },
      h("div", { class: "head" }, h("h2", { class: "path" }, path), health(it), h("span", { class: "tag" }, it.kind),
        it.flags.map((flag) => h("span", { class: "tag" }, flag)),
        h("span", { class: "quiet small push" }, `${it.senders} sending · ${it.receivers} receiving${it.waiting ? ` · ${it.waiting} waiting for a session` : ""}`)),
      h("div", { class: "body" },
        h("dl", { class: "figures" },
          figure("Active", count(counts.active)), figure("Scheduled", count(counts.scheduled)), figure("Deferred", count(counts.deferred)),
          figure("Dead letters", count(counts.dead_letter), "", counts.dead_letter ? "bad" : ""),
          figure("Size", bytes(counts.size_in_bytes), `of ${bytes(it.quota)}`)),
        h("figure", { class: "plot tall" },
          legend(["Active", count(counts.active), ""], ["Dead letters", count(counts.dead_letter), "bad"]),
          plot([[level(it.history, 0), ""], [level(it.history, 1), "bad"]], `Messages in ${path}`, "")))),
    it.partitions.length > 0 && h("section", { class: "card", "aria-label": "Partitions" },
      h("div", { class: "head" }, h("h2", {}, "Partitions"), h("span", { class: "quiet" }, `${it.partitions.length}, active messages in each`)),
      h("div", { class: "body" }, h("ul", { class: "parts" }, it.partitions.map((each) =>
        h("li", { class: each.health }, h("span", {}, `${each.index} · ${each.health}`), h("b", {}, count(each.counts.active)),
          each.counts.dead_letter > 0 && h("span", {}, `${count(each.counts.dead_letter)} dead`)))))),
    it.subscriptions.length > 0 && h("section", { class: "card", "aria-label": "Subscriptions" },
      h("div", { class: "head" }, h("h2", {}, "Subscriptions"),
        it.subscriptions.map((each) => h("a", { class: "path", href: link(namespace, each) }, each.split("/").pop())))),
    it.rules.length > 0 && h("section", { class: "card", "aria-label": "Rules" },
      h("div", { class: "head" }, h("h2", {}, "Rules")),
      table("Rules", ["Name", "Filter", "Action"], it.rules.map((rule) => h("tr", { key: rule.name },
        h("th", { scope: "row" }, rule.name), h("td", { class: "mono why" }, rule.filter), h("td", { class: "mono why" }, rule.action ?? ""))))),
    h("section", { class: "card", "aria-label": part === SESSIONS ? "Sessions" : "Messages" },
      h("div", { class: "head" }, h("div", { class: "tabs", role: "group", "aria-label": "Which messages" }, tabs.map(([to, word]) =>
        h("button", { type: "button", "aria-pressed": String(to === part), onclick: () => pick(to) }, `${word} ${count(numbers[to])}`))), part !== SESSIONS && seek, buttons),
      panel,
      part === SESSIONS ? sessionsTable(held, turn) : page.messages.length
        ? table("Messages, peeked", [">Number", "Message id", "State", "#narrow Session", "Enqueued", "#narrow >Deliveries", "#narrow >Size"].map((x, i) => (i ? x : "Number")),
          page.messages.flatMap((each) => messageRows(namespace, path, each)))
        : h("p", { class: "empty" }, it.kind === "topic" && !part ? "A topic stores scheduled messages only; its subscriptions store the copies." : state.sought ? "No message found." : "No messages."),
      part !== SESSIONS && (state.from > 1 || page.next || page.messages.length === page.most || it.partitions.length > 0) && h("div", { class: "foot" },
        state.from > 1 && h("button", { type: "button", onclick: () => turn(1) }, "First page"),
        (page.messages.length > 0 || page.next) && h("button", { type: "button", onclick: () => turn(end + 1) }, "Next page"),
        it.partitions.length > 0 && h("span", { class: "quiet small" }, "Listed one partition at a time, as peek does."))),
    h("section", { class: "card", "aria-label": "Settings" }, h("div", { class: "head" }, h("h2", {}, "Settings"),
      h("span", { class: "quiet small push" }, "created ", time(it.created_at), it.accessed_at ? [" · last used ", time(it.accessed_at)] : " · never used")),
      h("div", { class: "body" }, h("dl", { class: "settings" }, Object.entries(it.description).map(([name, value]) => setting(name, value, it.spans.includes(name)))))),
  ]];
}

// -- connections and refusals

async function connections() {
  const summary = await ask("overview");
  const pages = await Promise.all(summary.namespaces.map((each) => ask("connections", { namespace: each.name })));
  return [summary, summary.namespaces.map((each, i) => h("section", { class: "card", key: each.name, "aria-label": `Connections to ${each.name}` },
    h("div", { class: "head" }, h("h2", {}, each.name), h("span", { class: "quiet" }, `${count(pages[i].total)} open`)),
    pages[i].rows.length ? table(`Connections to ${each.name}`, ["From", "Container", "Links"], pages[i].rows.map((row) =>
      h("tr", { key: row.peer }, h("th", { scope: "row", class: "mono wide" }, row.peer), h("td", { class: "mono path" }, row.container),
        h("td", {}, row.links.map((one) => h("div", {}, `${one.what} `,
          h("a", { class: "path", href: link(each.name, one.path.replace(/\/\$.*$/, "")) }, one.path),
          h("span", { class: "quiet small" }, ` · credit ${count(one.credit)}`))),
        row.more > 0 && h("div", { class: "quiet" }, `and ${row.more} more`), !row.links.length && h("span", { class: "quiet" }, "no entity links")))))
      : h("p", { class: "empty" }, "No connections.")))];
}

async function rejections() {
  const summary = await ask("overview");
  const pages = await Promise.all(summary.namespaces.map((each) => ask("rejections", { namespace: each.name })));
  return [summary, summary.namespaces.map((each, i) => h("section", { class: "card", key: each.name, "aria-label": `Rejections of ${each.name}` },
    h("div", { class: "head" }, h("h2", {}, each.name), h("span", { class: "quiet" }, `${count(pages[i].lately)} in five minutes, ${count(pages[i].last_hour)} in an hour, ${count(pages[i].total)} since the start`),
      Object.entries(pages[i].by_condition).map(([name, n]) => h("span", { class: "tag mono" }, `${name} × ${count(n)}`))),
    pages[i].recent.length ? table(`Last rejections of ${each.name}`, ["Time", "Request", "Condition", "Reason"], pages[i].recent.map((row) =>
      h("tr", {}, h("td", { class: "wide" }, time(row.at)), h("td", { class: "path" }, row.path),
        h("td", { class: "mono wide" }, row.condition), h("td", { class: "why" }, row.text))))
      : h("p", { class: "empty" }, "No rejections.")))];
}

// -- routing and polling

function plain(part) {
  try { return decodeURIComponent(part); } catch { return part; }  // typed by hand: an invalid escape is literal text
}

function route() {
  const [, view, ...rest] = location.hash.split("/").map(plain);
  if (view === "entity" && rest.length === 2) return ["", () => entity(...rest)];
  return { connections: ["connections", connections], rejections: ["rejections", rejections] }[view] ?? ["overview", overview];
}

function navigation(current, summary) {
  const refused = summary.namespaces.reduce((sum, each) => sum + each.rejected_lately, 0);
  const open = summary.namespaces.reduce((sum, each) => sum + each.connections, 0);
  const item = (name, href, word, note) => h("a", { href, "aria-current": current === name ? "page" : null }, word, note);
  return h("nav", { id: "nav", "aria-label": "Views" }, item("overview", "#/", "Overview"),
    item("connections", "#/connections", `Connections ${count(open)}`),
    item("rejections", "#/rejections", "Rejections", refused > 0 && h("span", { class: "count" }, count(refused))));
}

function say(word, text) {
  if (word) live.dataset.state = word; else delete live.dataset.state;
  if (live.textContent !== text) live.textContent = text;
}

let timer = 0;
let busy = false;
let again = false;

function soon() {
  clearTimeout(timer);
  if (busy) again = true; else void tick();
}

async function tick() {
  busy = true;
  again = false;
  const asked = location.hash;
  try {
    const [current, view] = route();
    const [summary, parts] = await view();
    if (asked === location.hash) {
      morph(document.getElementById("nav"), navigation(current, summary));
      morph(main, h("main", { id: "main", tabindex: "-1" }, parts));
      refocus();
      refocusOperation();
      say(state.paused ? "paused" : "", state.paused ? `Paused at ${when(Date.now())}` : `Live · ${when(Date.now())}`);
    }
  } catch (error) {
    if (error.status === 401) say("lost", "Not allowed: open the address that was printed at startup");
    else if (error.status === 404) morph(main, h("main", { id: "main", tabindex: "-1" }, h("p", { class: "card empty" }, error.message)));
    else say("lost", "The broker does not answer");
  }
  busy = false;
  if (again) return soon();
  if (!state.paused && !document.hidden) timer = setTimeout(tick, EVERY);
}

pause.addEventListener("click", () => {
  state.paused = !state.paused;
  pause.setAttribute("aria-pressed", String(state.paused));
  pause.textContent = state.paused ? "Resume" : "Pause";
  soon();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
addEventListener("hashchange", () => {
  Object.assign(state, { part: "", from: 1, open: null, message: null, sought: "" });
  forget();
  scrollTo(0, 0);
  soon();
});
soon();
