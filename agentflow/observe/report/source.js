// The text of a program as lines, coloured words and expressions, and how one finds something in it.
"use strict";

const TOKENS = {
  sexp: /(?<comment>;[^\n]*)|(?<string>"(?:\\[\s\S]|[^"\\])*")|(?<word>(?<=\()[^\s()"';]+)/g,
  python: /(?<comment>#[^\n]*)|(?<string>[rbfu]{0,2}(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))|(?<word>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|match|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)/gi,
};
const LINE = 20, MARGIN = 12;    // height of a line and the space above the first, as in the style
const ROOM = 1000, SITE_ROOM = 5;  // how much is drawn at once: a coloured word takes one, an expression that ran five
const MAX_SITES = 300, MAX_WORDS = 2000, MAX_LINES = 1500;

// The text of a program: where its lines begin, its coloured words, and where expressions stand in it.
class ProgramText {
  constructor(program) {
    const { text, language } = program;
    this.program = program; this.text = text; this.starts = [0]; this.widest = 0;
    for (const line of text.split("\n")) { this.starts.push(this.starts[this.starts.length - 1] + line.length + 1); this.widest = Math.max(this.widest, line.length); }
    this.lines = this.starts.length - 1;
    this.words = Array.from(text.matchAll(TOKENS[language] || TOKENS.python), (found) => ({ index: found.index, end: found.index + found[0].length,
      kind: found.groups.comment !== undefined ? "comment" : found.groups.string !== undefined ? "string" : "word" }));
  }

  // The sites as offsets into the text, outer ones before those within them.
  placed(sites) {
    return sites.map((site) => ({ site, start: this.offset(site.at.line, site.at.column), end: this.offset(site.at.end_line, site.at.end_column) }))
      .filter((each) => each.end > each.start && each.end <= this.text.length).sort((a, b) => a.start - b.start || b.end - a.end);
  }

  offset(line, column) {
    const whole = this.text.slice(this.starts[line - 1], (this.starts[line] || 1) - 1);
    // columns count characters, JavaScript counts UTF-16 units
    return this.starts[line - 1] + (/^[\x00-\x7f]*$/.test(whole) ? column - 1 : [...whole].slice(0, column - 1).join("").length);
  }

  // The line in which an offset is, from 0.
  line(offset) { return below(this.starts, (start) => start <= offset) - 1; }

  // The coloured words of a part of the text, `most` at most.
  tokens(from, to, most) {
    const first = below(this.words, (word) => word.end <= from);
    return this.words.slice(first, Math.min(first + most, below(this.words, (word) => word.index < to)));
  }

  // The lines around those from `first` to `until` that there is room for.
  around(first, until, sites) {
    const room = (from, to) => below(this.words, (word) => word.index < to) - below(this.words, (word) => word.index < from)
      + SITE_ROOM * (below(sites, (each) => each.start < to) - below(sites, (each) => each.start < from));
    for (let more = 64; more >= 1;) {
      const next = [Math.max(0, first - more), Math.min(this.lines, until + more)];
      const fits = next[1] - next[0] <= MAX_LINES && room(this.starts[next[0]], this.starts[next[1]]) <= ROOM;
      if (fits) [first, until] = next; else more >>= 1;
      if (first === 0 && until === this.lines) break;
    }
    return [first, until];
  }
}

// How many items at the begin of a list fulfil a condition that no later one does.
function below(list, fits) {
  let low = 0, high = list.length;
  while (low < high) { const middle = (low + high) >> 1; if (fits(list[middle])) low = middle + 1; else high = middle; }
  return low;
}

// The times an expression ran: one of them by its number, the next and the one before.
class Occurrences {
  constructor(choose) {
    this.choose = choose; this.nodes = [];
    this.number = element("input", { type: "number", min: "1", "aria-label": "occurrence", onchange: () => this.go(Number(this.number.value) - 1) });
    this.said = element("span", { class: "soft" });
    const step = (text, title, by) => element("button", { type: "button", class: "icon", title, onclick: () => this.go(this.at + by) }, text);
    this.box = element("div", { class: "times occurrence", hidden: true }, step("‹", "the time before", -1), this.number, this.said, step("›", "the next time", 1));
  }

  show(nodes, at) {
    this.nodes = nodes; this.at = at;
    this.box.hidden = nodes.length < 2;
    if (this.box.hidden) return;
    let branch = nodes[at];
    while (branch && branch.kind !== "branch") branch = branch.parent;
    this.number.value = String(at + 1); this.number.max = String(nodes.length);
    this.said.textContent = `of ${count(nodes.length)}${branch ? `, ${visible(branch.label)}` : ""}: ${SHOWN[nodes[at].state] || nodes[at].state}`;
  }

  go(at) {
    this.show(this.nodes, Math.max(0, Math.min(this.nodes.length - 1, at || 0)));
    this.choose(this.nodes[this.at]);
  }
}

// The search in a text of which not every line is an element, so that the browser's own does not see them.
class Finder {
  constructor(pane) {
    this.pane = pane; this.found = []; this.at = -1;
    this.field = element("input", { type: "search", placeholder: "Find in the text", "aria-label": "find in the program", oninput: () => this.look(),
      onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); this.go(event.shiftKey ? -1 : 1); } } });
    this.said = element("span", { class: "soft", role: "status" });
    this.box = element("div", { class: "times find", hidden: true }, this.field, this.said);
    this.band = element("div", { class: "band", hidden: true });
  }

  clear() { this.field.value = ""; this.look(); }

  look() {
    const text = this.pane.source.text.toLowerCase(), wanted = this.field.value.toLowerCase();
    this.found = []; this.at = -1;
    for (let at = wanted ? text.indexOf(wanted) : -1; at >= 0 && this.found.length < 10000; at = text.indexOf(wanted, at + wanted.length)) this.found.push(at);
    this.go(1);
  }

  go(by) {
    const number = this.found.length, source = this.pane.source;
    this.band.hidden = !number;
    this.said.textContent = number ? "" : this.field.value ? "not there" : "";
    if (!number) return;
    this.at = (this.at + by + number) % number;
    this.said.textContent = `${count(this.at + 1)} of ${count(number)}`;
    const line = source.line(this.found[this.at]);
    this.band.style.top = `${line * LINE + MARGIN}px`;
    this.pane.scrollTo(line + 1, this.found[this.at] - source.starts[line]);
  }
}
