// Elements, plots and numbers. Text is only inserted as text nodes; SVG and HTML elements are distinguished by name.
const SVG = "http://www.w3.org/2000/svg";
const FLAGS = new Set(["required", "readonly"]);
const IN_SVG = new Set(["svg", "path", "rect", "line", "g", "title"]);

export function h(tag, attributes = {}, ...children) {
  const made = IN_SVG.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made[name] = value;
    else if (name === "key") made.key = value;
    else if (value !== null && value !== undefined && (value !== "" || FLAGS.has(name))) made.setAttribute(name, value);
  }
  made.append(...children.flat(3).filter((child) => child || child === 0));
  return made;
}

// Make `old` equal to `made`, changing only what differs, so that focus, selection and scroll position remain.
export function morph(old, made) {
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of ["onclick", "oninput", "onsubmit", "onfocus"]) old[name] = made[name];
  old.key = made.key;
  const keyed = new Map([...old.childNodes].filter((each) => each.key !== undefined).map((each) => [each.key, each]));
  let at = old.firstChild;
  for (const wanted of [...made.childNodes]) {
    let found = wanted.key === undefined ? at : keyed.get(wanted.key);
    if (!found || found.nodeName !== wanted.nodeName || found.key !== wanted.key) {
      old.insertBefore(wanted, at);
      continue;
    }
    if (found !== at) old.insertBefore(found, at);
    if (found.nodeType === Node.TEXT_NODE) {
      if (found.data !== wanted.data) found.data = wanted.data;
    } else morph(found, wanted);
    at = found.nextSibling;
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

const whole = new Intl.NumberFormat("en");
export const count = (value) => whole.format(value);

export function bytes(value) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (value < 1024 || unit === "GB") return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1024;
  }
}

export function span(ms) {
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size) return `${+(ms / size).toFixed(1)} ${unit}`;
  }
  return `${ms} ms`;
}

export const when = (at) => new Date(at).toLocaleTimeString("en-GB");
export function time(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "?";
  const isToday = date.toDateString() === new Date().toDateString();
  const text = isToday ? when(at) : `${date.toLocaleDateString("sv")} ${when(at)}`;
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, text);
}

const SIGNS = { good: "●", warn: "▲", bad: "✕" };
export const badge = (text, tone = "") => h("span", { class: `badge ${tone}`, "data-sign": SIGNS[tone] ?? "○" }, text);

// Column heads: "Name", ">Name" to align right, "#narrow Name" to hide on a narrow screen.
export function table(caption, heads, rows) {
  const head = (text) => {
    const narrow = text.startsWith("#narrow ");
    const rest = narrow ? text.slice(8) : text;
    const right = rest.startsWith(">");
    return h("th", { scope: "col", class: `${right ? "n" : ""} ${narrow ? "narrow" : ""}`.trim() }, right ? rest.slice(1) : rest);
  };
  return h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, heads.map(head))), h("tbody", {}, rows)));
}

export const legend = (...entries) => h("div", { class: "legend" }, entries.map(([name, value, tone]) =>
  h("span", {}, h("i", { class: tone }), `${name} `, h("b", {}, value))));

function course(series, from, to, top, width, height) {
  return series.map(([at, value], i) => {
    const x = ((at - from) / Math.max(1, to - from)) * width;
    const y = height - (value / top) * height;
    return `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
}

function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return Math.max(4, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value));
}

export function plot(lines, label, unit) {
  const all = lines.flatMap(([series]) => series);
  const width = 600, height = 100;
  const from = Math.min(...all.map(([at]) => at)), to = Math.max(...all.map(([at]) => at));
  const top = ceiling(Math.max(1, ...all.map(([, value]) => value)));
  const seconds = all.length ? Math.round((to - from) / 1000) : 0;
  const [first] = lines[0];
  const area = first.length > 1
    ? `${course(first, from, to, top, width, height)}L${(((first[first.length - 1][0] - from) / Math.max(1, to - from)) * width).toFixed(1)} ${height}L0 ${height}Z` : "";
  return [
    h("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: up to ${count(top)}${unit} over ${seconds} s` },
      [0, 0.5, 1].map((part) => h("line", { class: "axis", x1: 0, x2: width, y1: part * height, y2: part * height })),
      area && h("path", { class: "area", d: area }),
      lines.map(([series, tone]) => series.length > 1 && h("path", { class: `line ${tone}`, d: course(series, from, to, top, width, height) }))),
    h("figcaption", { class: "scale" }, h("span", {}, seconds ? `${seconds} s ago` : "since opening"), h("span", {}, `top line ${count(top)}${unit}`), h("span", {}, "now")),
  ];
}

export function spark(series, label) {
  const top = Math.max(1, ...series.map(([, value]) => value));
  const from = series.length ? series[0][0] : 0, to = series.length ? series[series.length - 1][0] : 1;
  const d = series.length > 1 ? course(series, from, to, top * 1.08, 100, 24) : "M0 24L100 24";
  return h("svg", { class: "spark", viewBox: "0 0 100 25", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: at most ${count(top)}` },
    series.length > 1 && h("path", { class: "area", d: `${d}L100 25L0 25Z` }), h("path", { class: "line", d }));
}
