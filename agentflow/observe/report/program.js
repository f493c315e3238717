// The program's text, each expression coloured by what its calls did. Any text will do whose places are spans of lines and columns.
"use strict";

const TOKENS = {
  sexp: /(?<comment>;[^\n]*)|(?<string>"(?:\\[\s\S]|[^"\\])*")|(?<word>(?<=\()[^\s()"';]+)/g,
  python: /(?<comment>#[^\n]*)|(?<string>[rbfu]{0,2}(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))|(?<word>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|match|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)/gi,
};
const HEATS = [["state", "by state"], ["time", "by share of time"], ["cost", "by share of cost"]];

class ProgramPane {
  constructor(view) {
    this.view = view; this.run = view.run;
    this.heat = "state"; this.site = null; this.boxes = new Map();
    this.colour = element("select", { "aria-label": "colour by", onchange: () => { this.heat = this.colour.value; this.draw(); } },
      HEATS.map(([value, text]) => element("option", { value }, text)));
    this.tabs = element("select", { "aria-label": "program", onchange: () => this.draw() });
    this.times = element("select", { "aria-label": "occurrence", hidden: true,
      onchange: () => this.view.choose(this.site.nodes[Number(this.times.value)], false) });
    this.gutter = element("pre", { class: "gutter", "aria-hidden": "true" });
    this.text = element("pre", { class: "program", "aria-label": "program",
      onmouseover: (event) => this.hint(event.target.closest(".site")), onmouseleave: () => this.hint(null),
      onfocusin: (event) => this.hint(event.target.closest(".site")), onfocusout: () => this.hint(null) });
    this.scroll = element("div", { class: "scroll", tabindex: "0" }, this.gutter, this.text);
    this.tip = element("div", { class: "tip", hidden: true, role: "tooltip" });
    this.box = element("section", { class: "program-pane" },
      element("div", { class: "bar" }, this.tabs, this.colour, this.times), this.scroll, this.tip);
  }

  draw() {
    const names = [...this.run.programs.keys()];
    if (this.tabs.options.length !== names.length) this.tabs.replaceChildren(...names.map((name) => element("option", { value: name }, visible(name))));
    this.tabs.hidden = !names.length;
    const { text, language } = this.run.programs.get(this.tabs.value) || { text: "", language: "sexp" };
    this.gutter.hidden = !text;
    if (!text) { this.text.replaceChildren(element("p", { class: "empty" }, "The text of the program is not in the recording.")); return; }
    this.gutter.textContent = text.split("\n").map((_, at) => at + 1).join("\n");
    this.text.classList.toggle("heat", this.heat !== "state");
    this.write(text, placed(this.run, this.tabs.value, text), [...text.matchAll(TOKENS[language] || TOKENS.python)]);
  }

  // The text with a box around each expression that did something; `sites` and `tokens` are in order.
  write(text, sites, tokens) {
    this.boxes.clear();
    const whole = this.heat === "time" ? this.run.end - this.run.begin : (this.run.finish && this.run.finish.cost_usd) || 0;
    const paints = { comment: [], string: [], word: [], ok: [], failed: [], stopped: [], waiting: [], running: [] };
    const stack = [{ box: document.createDocumentFragment(), end: text.length, state: null }];
    let at = 0, next = 0;
    const put = (until, kind) => {
      if (until <= at) return;
      const { box, state } = stack[stack.length - 1];
      for (const part of text.slice(at, until).split(/(\n\s*)/)) {
        if (!part) continue;
        const piece = document.createTextNode(visible(part));
        box.append(piece);
        if (!part.trim()) continue;
        if (kind) paints[kind].push(piece);
        if (state && this.heat === "state") paints[state].push(piece);
      }
      at = until;
    };
    const say = (until) => {
      for (; next < tokens.length && tokens[next].index < until; next += 1) {
        const token = tokens[next], end = token.index + token[0].length;
        const kind = Object.keys(token.groups).find((name) => token.groups[name] !== undefined);
        put(token.index);
        put(Math.min(end, until), kind);
        if (end > until) return;
      }
      put(until);
    };
    const close = (until) => { while (stack.length > 1 && stack[stack.length - 1].end <= until) { say(stack[stack.length - 1].end); stack.pop(); } };
    for (const { site, start, end } of sites) {
      close(start);
      if (end > stack[stack.length - 1].end) continue;
      say(start);
      const state = stateOf(site.nodes);
      const box = element("span", { class: `site ${state}${this.site === site ? " chosen" : ""}`, tabindex: "0", role: "button",
        onclick: (event) => { event.stopPropagation(); this.pick(site); },
        onkeydown: (event) => { if (event.key === "Enter" && event.target === box) this.pick(site); } });
      box.site = site;
      if (this.heat !== "state") box.style.setProperty("--heat", String(share(site.nodes, this.heat, whole, this.run)));
      this.boxes.set(site, box);
      stack[stack.length - 1].box.append(box);
      stack.push({ box, end, state });
    }
    close(text.length);
    say(text.length);
    this.text.replaceChildren(stack[0].box);
    paint(paints);
  }

  hint(box) {
    this.tip.hidden = !box;
    if (!box) return;
    this.tip.replaceChildren(...about(box.site.nodes, this.run).map((line) => element("div", {}, line)));
    const place = box.getClientRects()[0], tip = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.max(8, Math.min(place.left, innerWidth - tip.width - 8))}px`;
    this.tip.style.top = `${place.top > tip.height + 12 ? place.top - tip.height - 6 : place.bottom + 6}px`;
  }

  // Show what one expression did, and that alone in the timeline; the same again shows everything.
  pick(site) {
    const before = this.boxes.get(this.site);
    this.site = this.site === site ? null : site;
    if (before) before.classList.remove("chosen");
    const nodes = this.site ? this.site.nodes : [];
    if (this.site) this.boxes.get(this.site).classList.add("chosen");
    this.times.hidden = nodes.length < 2;
    this.times.replaceChildren(...nodes.slice(0, 2000).map((node, at) =>
      element("option", { value: String(at) }, visible(`${at + 1} of ${nodes.length}: ${node.path} ${node.state}`))));
    this.view.timeline.filter();
    if (nodes.length) this.view.choose(nodes[0], false); else this.view.close();
    if (this.site) this.boxes.get(this.site).scrollIntoView({ block: "nearest" });
  }

  unpick() { if (this.site) this.pick(this.site); }

  // Scroll to the expression that a step belongs to.
  reveal(span) {
    if (!this.run.programs.has(span.source)) return;
    if (this.tabs.value !== span.source) { this.tabs.value = span.source; this.draw(); }
    for (const [site, box] of this.boxes) {
      const same = sameSpan(site.at, span);
      box.classList.toggle("shown", same);
      if (same) box.scrollIntoView({ block: "center" });
    }
  }
}

// The sites of a text, as offsets into it, outer ones before those within them.
function placed(run, name, text) {
  const lines = text.split("\n"), starts = [0];
  for (const line of lines) starts.push(starts[starts.length - 1] + line.length + 1);
  const offset = (line, column) => {
    const whole = lines[line - 1] || "";
    // columns count characters, JavaScript counts UTF-16 units
    return starts[line - 1] + (/^[\x00-\x7f]*$/.test(whole) ? column - 1 : [...whole].slice(0, column - 1).join("").length);
  };
  return [...run.sites.values()].filter((site) => site.at.source === name)
    .map((site) => ({ site, start: offset(site.at.line, site.at.column), end: offset(site.at.end_line, site.at.end_column) }))
    .filter((each) => each.end > each.start && each.end <= text.length).sort((a, b) => a.start - b.start || b.end - a.end);
}

// The share of the run's cost that an expression had, or of its time in which it ran, however often at once.
function share(nodes, heat, whole, run) {
  let sum = 0, end = -Infinity;
  for (const node of nodes) {
    if (heat === "cost") { sum += costOf(node) || 0; continue; }
    const until = node.until === null ? run.end : node.until;
    sum += Math.max(0, until - Math.max(node.begin, end));
    end = Math.max(end, until);
  }
  return whole ? Math.min(1, sum / whole) : 0;
}

// What an expression did, in a few lines.
function about(nodes, run) {
  let time = 0, most = 0, tokens = 0, cost = 0, failed = 0, running = 0;
  for (const node of nodes) {
    const length = lasted(node, run);
    time += length; most = Math.max(most, length); failed += node.state === "failed"; running += node.end === null;
    const usage = usageOf(node);
    if (usage) tokens += (usage.input_tokens || 0) + (usage.output_tokens || 0);
    cost += costOf(node) || 0;
  }
  const last = nodes[nodes.length - 1], said = gave(last).slice(0, 240);
  return [`${plural(nodes.length, "time")}${failed ? `, ${failed} failed` : ""}${running ? `, ${running} not ended` : ""}`,
    nodes.length > 1 ? `${seconds(time)} in all, ${seconds(most)} at most` : seconds(time),
    tokens ? `${count(tokens)} tokens${cost ? `, ${money(cost)}` : ""}` : null,
    said ? visible(said) : null].filter(Boolean);
}

// Colour pieces of the text where the browser can do that without elements.
function paint(paints) {
  if (!globalThis.CSS || !CSS.highlights) return;
  for (const [kind, pieces] of Object.entries(paints)) {
    const highlight = new Highlight();
    for (const piece of pieces) highlight.add(new StaticRange({ startContainer: piece, startOffset: 0, endContainer: piece, endOffset: piece.length }));
    CSS.highlights.set(kind, highlight);
  }
}
