// The history of the pair, from the journals: the states of each entity over time, and the events.
import { badge, count, h, time, when } from "/draw.js";

const WORDS = {
  entity_suspected: ["Suspected", "warn", "?"],
  entity_failed_over: ["Failed over", "bad", "✕"],
  entity_recovered: ["Back on the primary", "good", "✓"],
  message_parked: ["Parked in a backlog queue", "warn", "↓"],
  messages_forwarded: ["Brought home by the syphon", "good", "↑"],
  messages_landed: ["Landed on the secondary", "good", "↑"],
  landing_began: ["Parked messages land on the secondary", "warn", "⇥"],
  landing_ended: ["Parked messages go to the primary again", "good", "✓"],
  landing_refused: ["The secondary has no usable twin", "bad", "!"],
  messages_untransferred: ["Refused after landing: redrive --transfer", "bad", "!"],
  backlogs_drained: ["Backlogs are empty", "good", "✓"],
  backlogs_created: ["Backlog queues exist", "good", "+"],
  backlogs_not_created: ["Ensuring the backlog queues failed", "warn", "!"],
  backlog_withdrawn: ["A backlog queue failed", "warn", "!"],
  backlog_returned: ["A backlog queue works again", "good", "✓"],
  backlog_missing: ["A backlog queue is missing", "warn", "?"],
  backlog_detached: ["A backlog queue was detached", "warn", "!"],
  backlog_overdue: ["A parked message is overdue", "bad", "!"],
  backlog_caught_up: ["Nothing is overdue any more", "good", "✓"],
  message_spooled: ["Written to the spool", "warn", "↓"],
  spool_replayed: ["Replayed from the spool", "good", "↑"],
  spooled_message_refused: ["Quarantined in the spool", "bad", "!"],
  message_set_aside: ["Dead-lettered on its backlog queue", "bad", "!"],
  send_raised: ["Raised to the caller", "bad", "!"],
  send_accepted: ["Accepted", "", "→"],
  messages_received: ["Received", "", "←"],
  entity_emptied: ["Found empty", "good", "✓"],
  ping_sent: ["Ping to the primary", "", "·"],
  link_probed: ["Probe of the primary", "", "·"],
  ping_failed: ["The primary does not answer pings", "warn", "!"],
  syphon_connected: ["Syphon connected", "good", "✓"],
  syphon_disconnected: ["Syphon lost a side", "warn", "!"],
  destination_held: ["A destination is held", "warn", "!"],
  destination_resumed: ["A destination accepts messages again", "good", "✓"],
  side_faulted: ["A side refuses access", "bad", "!"],
  side_recovered: ["A side accepts again", "good", "✓"],
  side_refused: ["A side refuses the syphon", "bad", "!"],
  side_accepted: ["A side accepts the syphon", "good", "✓"],
  side_closed: ["A side was closed", "warn", "!"],
  pair_faulted: ["The pair is faulted", "bad", "✕"],
  journal_gap: ["A gap in a journal", "bad", "!"],
};
const STATES = { healthy: ["On the primary", "good"], suspect: ["Suspect", "warn"], failed_over: ["Failed over", "bad"] };
const WHOLE = 1000;

function ribbon(entity, from, to, lands) {
  const spans = entity.spans.map((each) => ({ ...each, at: Date.parse(each.at) }));
  const x = (at) => ((Math.min(Math.max(at, from), to) - from) / Math.max(1, to - from)) * WHOLE;
  const marks = [{ state: "healthy", at: from }, ...spans].map((each, i, all) => {
    const end = i + 1 < all.length ? all[i + 1].at : to;
    const width = Math.max(0, x(end) - x(each.at));
    return h("rect", { class: `is-${each.state}`, x: x(each.at).toFixed(1), width: Math.max(each.state === "healthy" ? 0 : 3, width).toFixed(1), height: 10 },
      h("title", {}, `${STATES[each.state]?.[0] ?? each.state} from ${when(each.at)} to ${when(end)}`));
  });
  const [word, tone] = STATES[entity.state] ?? [entity.state, ""];
  return h("div", { class: "ribbon", key: entity.path },
    h("div", { class: "name" }, h("b", { class: "path" }, entity.path),
      h("span", { class: "badges" }, lands && badge("Lands on the secondary", "warn"), badge(word, tone))),
    h("svg", { viewBox: `0 0 ${WHOLE} 10`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${entity.path}: ${spans.map((each) => `${STATES[each.state]?.[0] ?? each.state} at ${when(each.at)}`).join(", ")}` }, marks));
}

function happened(each) {
  const [word, tone, sign] = WORDS[each.event] ?? [each.event.replaceAll("_", " "), "", "·"];
  const messages = each.messages ? ` · ${count(each.messages)} message${each.messages > 1 ? "s" : ""}` : "";
  const times = each.times > 1 && !each.messages ? ` · ${count(each.times)} times` : "";
  const whom = [each.path, each.where].filter(Boolean).join(" · ");
  return h("li", { class: tone },
    time(each.at), h("span", { class: "dot", "aria-hidden": "true" }, sign),
    h("div", {}, h("b", {}, word), `${messages}${times}`, h("span", { class: "quiet" }, ` · ${each.role}${whom ? ` · ${whom}` : ""}`),
      each.why && h("div", { class: "why" }, each.why)));
}

export function storyCard(story) {
  if (!story) {
    return h("section", { class: "card", key: "story", "aria-label": "Failovers" }, h("div", { class: "head" }, h("h2", {}, "Failovers")),
      h("p", { class: "empty" }, "For pairs of namespaces: to see failovers here, give sender and syphon a journal, and the broker its directory: ",
        h("code", {}, "sbpair broker --story DIR")));
  }
  const starts = [...story.entities.flatMap((each) => each.spans), ...story.events].map((each) => Date.parse(each.at)).filter((at) => at > 0);
  const to = Date.now();
  const from = Math.min(to - 60000, ...starts);
  const away = story.entities.filter((each) => each.state !== "healthy").length;
  return h("section", { class: "card", key: "story", "aria-label": "Failovers" },
    h("div", { class: "head" }, h("h2", {}, "Failovers"),
      story.entities.length > 0 && badge(away ? `${away} not on the primary` : "All on the primary", away ? "bad" : "good"),
      story.landing.length > 0 && badge(`${count(story.landing.length)} landing on the secondary`, "warn"),
      h("span", { class: "quiet small push" }, `${count(story.records)} journal records`)),
    story.events.length === 0 ? h("p", { class: "empty" }, "The journals have no events yet.")
      : h("div", { class: "body" },
        story.entities.length > 0 && h("div", { class: "ribbons" }, story.entities.map((each) => ribbon(each, from, to, story.landing.includes(each.path))),
          h("div", { class: "scale" }, h("span", {}, when(from)), h("span", { class: "legend" }, Object.entries(STATES).map(([name, [word]]) =>
            h("span", {}, h("i", { class: `is-${name}` }), word))), h("span", {}, "now"))),
        h("ol", { class: "story", "aria-label": "Events, newest first", tabindex: "0" }, story.events.map(happened))));
}
