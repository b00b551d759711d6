// Which texts are too pale against what is behind them? (WCAG 2.2, 1.4.3: 4.5 to 1)
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => .2126 * light(r) + .7152 * light(g) + .0722 * light(b);
  const ground = (e) => { for (; e; e = e.parentElement) {
    const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!says || !e.checkVisibility() || e.closest(".skip, .hidden, noscript, svg")) continue;
    const [a, b] = [luminance(rgba(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) poor.push(`${e.tagName}.${e.className}: ${ratio.toFixed(2)} ${e.textContent.slice(0, 40)}`);
  }
  return poor.join("\n");
})()
