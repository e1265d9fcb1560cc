// Elements of texts alone: what comes from a broker never becomes markup.

export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false).map(shown));
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, value);
  element.append(...children.flat().map(shown));
  return element;
}

const shown = (child) => (child instanceof Node ? child : document.createTextNode(plain(child)));

// Characters that are not seen, or turn the direction of a text, are shown by their number.
const HIDDEN = /(?![\t\n\r])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]/gu;
export const plain = (text) => String(text).replace(HIDDEN, (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);

const NUMBER = new Intl.NumberFormat("en");
export const number = (value) => (value == null ? "" : NUMBER.format(value));

export function bytes(value) {
  if (value == null) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

export function span(ms) {
  if (!ms) return "";
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${Math.round(s / 86400)} days`;
}

export const rate = (value) => (value == null ? "" : `${value < 10 ? value.toFixed(1) : number(Math.round(value))}/s`);

// A sender may name a time that no calendar has: it is shown as the number that it is.
export function clock(ms) {
  if (!ms) return "";
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? `${ms} ms` : at.toISOString().replace("T", " ").replace(/\.(\d{3})Z/, ".$1 UTC");
}

// Columns: [key, heading, form, kind]; form(value, row) gives text or nodes.
export function table(caption, columns, rows, { sort, onsort, unsorted = [], empty = "Nothing." } = {}) {
  if (!rows.length) return h("p.faint", {}, empty);
  const head = columns.map(([key, heading, , kind]) =>
    h(kind === "number" ? "th.number" : "th", { scope: "col", "aria-sort": sort?.key === key ? (sort.descending ? "descending" : "ascending") : null },
      onsort && !unsorted.includes(key) ? h("button", { type: "button", onclick: () => onsort(key) }, heading) : heading));
  const body = rows.map((row) =>
    h("tr", {}, columns.map(([key, , form, kind]) => h(kind ? `td.${kind}` : "td", {}, form ? form(row[key], row) : row[key] ?? ""))));
  return h("div.wide", { tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export const cards = (entries) => h("dl.cards", {}, entries.map(([name, value, kind]) => h("div", {}, h("dt", {}, name), h(kind ? `dd.${kind}` : "dd", {}, value))));
export const facts = (entries) => h("dl.facts", {}, entries.filter(([, value]) => value !== "" && value != null).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// Lines over time: points are [time_ms, value, value of the second line].
export function chart(title, points, form) {
  const second = points.some((point) => point.length > 2);
  if (points.length < 2) return h("p.faint", {}, `${title}: not enough points yet.`);
  const most = Math.max(1, ...points.flatMap((point) => point.slice(1)));
  const [from, to] = [points[0][0], points[points.length - 1][0]];
  const line = (at) => points.map((point) => `${(((point[0] - from) / (to - from)) * 1000).toFixed(1)},${(98 - (point[at] / most) * 94).toFixed(1)}`).join(" ");
  const last = points[points.length - 1];
  const said = `${title}: now ${last.slice(1).map(form).join(" and ")}, at most ${form(most)}, over ${span(to - from)}`;
  const lines = [svg("polyline", { points: line(1) })];
  if (second) lines.push(svg("polyline", { points: line(2), class: "second" }));
  return h("figure", { style: null }, svg("svg", { class: "chart", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": said }, lines), h("figcaption.faint", {}, said));
}
