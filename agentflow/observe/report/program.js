// The program's text, each expression coloured by what its calls did. Any text will do whose places are spans of lines and columns.
"use strict";

const HEATS = [["state", "by state"], ["time", "by share of time"], ["cost", "by share of cost"], ["source", "by source"]];

class ProgramPane {
  constructor(view) {
    this.view = view; this.run = view.run;
    this.heat = "state"; this.site = null; this.shown = null; this.picked = false; this.boxes = new Map();
    this.source = null; this.sites = []; this.first = 0; this.until = 0; this.pending = false;
    this.colour = element("select", { "aria-label": "colour by", onchange: () => { this.heat = this.colour.value; this.draw(); } },
      HEATS.map(([value, text]) => element("option", { value }, text)));
    this.tabs = element("select", { "aria-label": "program", onchange: () => { this.picked = true; this.draw(); } });
    this.times = new Occurrences((node) => this.view.choose(node, false));
    this.find = new Finder(this);
    this.gutter = element("pre", { class: "gutter", "aria-hidden": "true" });
    this.text = element("pre", { class: "program", "aria-label": "program",
      onmouseover: (event) => this.hint(event.target.closest(".site")), onmouseleave: () => this.hint(null),
      onfocusin: (event) => this.hint(event.target.closest(".site")), onfocusout: () => this.hint(null) });
    this.scroll = element("div", { class: "scroll", tabindex: "0", onscroll: () => this.later() }, this.find.band, this.gutter, this.text);
    this.tip = element("div", { class: "tip", hidden: true, role: "tooltip" });
    this.box = element("section", { class: "program-pane" },
      element("div", { class: "bar" }, this.tabs, this.colour, this.find.box, this.times.box), this.scroll, this.tip);
    addEventListener("resize", () => this.look(), { signal: view.left.signal });
  }

  // Show what the run holds now.
  draw() {
    const names = [...this.run.programs.keys()];
    if (this.tabs.options.length !== names.length) this.tabs.replaceChildren(...names.map((name) => element("option", { value: name, title: visible(name) }, visible(name.split("/").pop() || name))));
    this.tabs.hidden = !names.length;
    this.colour.lastChild.hidden = !this.run.sources.names.length;
    if (!this.picked && names.length > 1) this.tabs.value = this.telling(names);
    const program = this.run.programs.get(this.tabs.value);
    this.gutter.hidden = this.colour.hidden = !program;
    if (!program) { this.text.replaceChildren(element("p", { class: "empty" }, "The text of the program is not in the recording.")); return; }
    if (!this.source || this.source.program !== program) { this.source = new ProgramText(program); this.find.clear(); }
    this.sites = this.source.placed([...this.run.sites.values()].filter((site) => site.at.source === this.tabs.value));
    this.text.classList.toggle("heat", this.heat === "time" || this.heat === "cost");
    this.text.classList.toggle("from", this.heat === "source");
    this.text.style.height = `${this.source.lines * LINE + 2 * MARGIN}px`;
    this.text.style.minWidth = `${this.source.widest + 4}ch`;
    this.until = 0;
    this.look();
    if (this.sites.length && this.begun !== program) { this.begun = program; this.bring(this.sites[0].site.at.line); }
    this.find.box.hidden = this.first === 0 && this.until === this.source.lines;
  }

  // The text a reader wants first: the main one, unless all it did was to call what another text says.
  telling(names) {
    const worked = {};
    for (const site of this.run.sites.values()) worked[site.at.source] = (worked[site.at.source] || 0) + 1;
    return names.find((name) => worked[name] > 1) || names[0];
  }

  later() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.look(); });
  }

  // Draw the lines in view, and as many around them as there is room for: of most programs that is every line.
  look() {
    if (!this.source || this.printing) return;
    const lines = this.source.lines, top = Math.floor((this.scroll.scrollTop - MARGIN) / LINE);
    const first = Math.max(0, Math.min(lines - 1, top)), until = Math.min(lines, first + Math.ceil(this.scroll.clientHeight / LINE) + 1);
    if (first >= this.first && until <= this.until) return;
    [this.first, this.until] = this.source.around(first, until, this.sites);
    this.write();
  }

  // The lines from `first` to `until`, with a box around each expression that did something.
  write() {
    const { text, starts } = this.source, from = starts[this.first], to = Math.min(text.length, starts[this.until] - 1);
    const lines = this.until - this.first, focused = document.activeElement && document.activeElement.site;
    this.gutter.style.paddingTop = this.text.style.paddingTop = `${this.first * LINE + MARGIN}px`;
    this.gutter.textContent = Array.from({ length: lines }, (_, at) => this.first + at + 1).join("\n");
    this.gutter.style.minWidth = `${String(this.source.lines).length + 4}ch`;
    this.boxes.clear();
    const whole = this.heat === "time" ? this.run.end - this.run.begin : (this.run.finish && this.run.finish.cost_usd) || 0;
    const paints = { comment: [], string: [], word: [], ok: [], failed: [], stopped: [], waiting: [], running: [] };
    const stack = [{ box: document.createDocumentFragment(), end: to, state: null }];
    const tokens = this.source.tokens(from, to, this.printing ? Infinity : MAX_WORDS);
    let at = from, next = 0;
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
        const { index, end, kind } = tokens[next];
        put(index);
        put(Math.min(end, until), kind);
        if (end > until) return;
      }
      put(until);
    };
    const close = (until) => { while (stack.length > 1 && stack[stack.length - 1].end <= until) { say(stack[stack.length - 1].end); stack.pop(); } };
    const sites = this.sites.filter((each) => each.end > from && each.start < to);
    for (const { site, start, end } of this.printing ? sites : sites.slice(0, MAX_SITES)) {
      close(start);
      if (Math.min(end, to) > stack[stack.length - 1].end) continue;
      say(Math.max(start, from));
      const state = stateOf(site.nodes), shown = this.shown && sameSpan(site.at, this.shown);
      const box = element("span", { class: `site ${state}${this.site === site ? " chosen" : ""}${shown ? " shown" : ""}`, tabindex: "0", role: "button",
        onclick: (event) => { event.stopPropagation(); this.pick(site); },
        onkeydown: (event) => { if (event.key === "Enter" && event.target === box) this.pick(site); } });
      box.site = site;
      if (this.heat === "source") this.stripe(box, sourcesOfAll(site.nodes));
      else if (this.heat !== "state") box.style.setProperty("--heat", String(share(site.nodes, this.heat, whole, this.run)));
      this.boxes.set(site, box);
      stack[stack.length - 1].box.append(box);
      stack.push({ box, end: Math.min(end, to), state });
    }
    close(to);
    say(to);
    this.text.replaceChildren(stack[0].box);
    paint(paints);
    // what is drawn anew keeps the keyboard: on the same expression, or else on the text
    if (focused) (this.boxes.get(focused) || this.scroll).focus({ preventScroll: true });
  }

  // Underline an expression in the colours of what its value came from.
  stripe(box, names) {
    box.classList.toggle("sourced", names.length > 0);
    if (names.length) box.style.setProperty("--from", this.run.sources.stripes(names));
  }

  hint(box) {
    this.tip.hidden = !box;
    if (!box) return;
    this.tip.replaceChildren(...about(box.site.nodes, this.run).map((line) => element("div", {}, line)));
    const place = box.getClientRects()[0], tip = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.max(8, Math.min(place.left, innerWidth - tip.width - 8))}px`;
    this.tip.style.top = `${place.top > tip.height + 12 ? place.top - tip.height - 6 : place.bottom + 6}px`;
  }

  // Show what one expression did, the first that failed before others, and that alone in the timeline; the same again shows everything.
  pick(site) {
    const before = this.boxes.get(this.site), nodes = this.site === site ? [] : site.nodes;
    this.site = this.site === site ? null : site;
    if (before) before.classList.remove("chosen");
    if (this.boxes.has(this.site)) this.boxes.get(this.site).classList.add("chosen");
    const failed = nodes.findIndex((node) => node.state === "failed");
    this.times.show(nodes, Math.max(0, failed));
    this.view.timeline.filter();
    if (nodes.length) this.view.choose(nodes[Math.max(0, failed)], false); else this.view.close();
  }

  unpick() { if (this.site) this.pick(this.site); }

  // Mark the expression that a step belongs to, and bring it into sight.
  reveal(span) {
    if (!span || !this.run.programs.has(span.source)) return;
    this.shown = span;
    if (this.tabs.value !== span.source) { this.tabs.value = span.source; this.picked = true; this.draw(); }
    this.bring(span.line);
    this.write();
  }

  // Scroll to a line that is out of sight.
  bring(line) {
    const at = (line - 1) * LINE + MARGIN - this.scroll.scrollTop;
    if (at < 0 || at > this.scroll.clientHeight - 2 * LINE) this.scrollTo(line);
  }

  // Bring a line, counted from 1, to the middle of the pane; `column` too.
  scrollTo(line, column = 1) {
    const wide = this.text.scrollWidth / (this.source.widest + 4);
    this.scroll.scrollTo({ top: (line - 1) * LINE + MARGIN - this.scroll.clientHeight / 2, left: column * wide > this.scroll.clientWidth * 0.7 ? (column * wide) / 2 : 0 });
    this.look();
  }

  // On paper there is nothing to scroll: the whole text.
  print(begins) {
    if (!this.source) return;
    this.printing = begins;
    if (!begins) { this.draw(); return; }
    [this.first, this.until] = [0, this.source.lines];
    this.write();
    this.text.style.height = this.text.style.minWidth = "";
  }
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
    cost += nanos(costOf(node));
  }
  const last = nodes[nodes.length - 1], said = gave(last).slice(0, 240);
  return [`${plural(nodes.length, "time")}${failed ? `, ${failed} failed` : ""}${running ? `, ${running} not ended` : ""}`,
    nodes.length > 1 ? `${seconds(time)} in all, ${seconds(most)} at most` : seconds(time),
    tokens ? `${count(tokens)} tokens${cost ? `, ${money(cost / 1e9)}` : ""}` : null,
    sourcesOfAll(nodes).length ? visible(`comes from ${sourcesOfAll(nodes).join(", ")}`) : null,
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
