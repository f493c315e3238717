// Text of models and programs as elements. Everything is set as text: nothing that a model wrote becomes markup or a link.
"use strict";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) made.append(child);
  return made;
}

// Invisible characters that reorder or hide text, shown as their code.
function visible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const INLINE = /(`+)([^`]+?)\1|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]+)\]\(([^)\s]+)\)/g;

function inline(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) parts.push(visible(text.slice(at, found.index)));
    if (found[2] !== undefined) parts.push(element("code", {}, visible(found[2])));
    else if (found[3] !== undefined) parts.push(element("strong", {}, visible(found[3])));
    else if (found[4] !== undefined) parts.push(element("em", {}, visible(found[4])));
    else parts.push(element("span", { class: "link", title: visible(found[6]) }, visible(found[5])));
    at = found.index + found[0].length;
  }
  if (at < text.length) parts.push(visible(text.slice(at)));
  return parts;
}

// A small part of Markdown: headings, lists, fenced code, emphasis, inert links.
function markdown(text) {
  const box = element("div");
  const lines = text.split("\n");
  let paragraph = [], list = null;
  const close = () => { if (paragraph.length) box.append(element("p", {}, inline(paragraph.join("\n")))); paragraph = []; list = null; };
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      close();
      const code = [];
      for (at += 1; at < lines.length && !lines[at].trim().startsWith(fence[1]); at += 1) code.push(lines[at]);
      box.append(element("pre", {}, visible(code.join("\n"))));
      continue;
    }
    const heading = /^(#{1,6})\s+(.*)/.exec(line);
    const item = /^\s*(?:[-*+]|\d+[.)])\s+(.*)/.exec(line);
    if (heading) { close(); box.append(element("p", {}, element("strong", {}, inline(heading[2])))); }
    else if (item) { if (!list) { close(); list = element("ul"); box.append(list); } list.append(element("li", {}, inline(item[1]))); }
    else if (!line.trim()) close();
    else { list = null; paragraph.push(line); }
  }
  close();
  return box;
}

// A word difference of two texts: the longest common subsequence of at most 1,500 words each, whole lines beyond.
function difference(before, after) {
  const cut = (text) => { const words = text.match(/\s+|[^\s]+/g) || []; return words.length > 1500 ? text.split(/(?<=\n)/).slice(0, 1500) : words; };
  const a = cut(before), b = cut(after);
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
  const box = element("pre", { class: "json" });
  let kind = "", run = [];
  const flush = () => { if (run.length) box.append(kind ? element(kind, {}, visible(run.join(""))) : visible(run.join(""))); run = []; };
  const put = (next, word) => { if (next !== kind) { flush(); kind = next; } run.push(word); };
  let i = 0, j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) { put("", a[i]); i += 1; j += 1; }
    else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) { put("del", a[i]); i += 1; }
    else { put("ins", b[j]); j += 1; }
  }
  for (; i < a.length; i += 1) put("del", a[i]);
  for (; j < b.length; j += 1) put("ins", b[j]);
  flush();
  return box;
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  const minutes = Math.round(value / 60), hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function money(value) { return value === null || value === undefined ? "unknown" : value === 0 ? "$0" : `$${value.toFixed(value < 0.01 ? 5 : 4)}`; }
function count(value) { return Number(value || 0).toLocaleString("en"); }
function plural(number, name) { return `${count(number)} ${name}${number === 1 ? "" : "s"}`; }
