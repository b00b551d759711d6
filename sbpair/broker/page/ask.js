// Requests to the broker. Each carries the proof of the page's session, which this origin keeps: a cookie is sent to every
// port of a host, the proof only by this page; see page_sessions.
const PROOF = "sbpair-proof";

const given = new URLSearchParams(location.search).get("proof");
if (given) {
  localStorage.setItem(PROOF, given);
  history.replaceState(null, "", location.pathname + location.hash);
}

async function request(path, init) {
  const headers = { "X-Sbpair-Page": localStorage.getItem(PROOF) ?? "", ...init.headers };
  const answer = await fetch(path, { ...init, headers });
  const reply = await answer.json().catch(() => ({ error: answer.statusText }));
  if (!answer.ok) throw Object.assign(new Error(reply.error || "no answer"), { status: answer.status });
  return reply;
}

export function ask(name, query = {}) {
  return request(`/api/${name}?${new URLSearchParams(query)}`, { signal: AbortSignal.timeout(12000) });
}

export function post(name, body) {
  return request(`/api/${name}`, { method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body), signal: AbortSignal.timeout(60000) });
}
