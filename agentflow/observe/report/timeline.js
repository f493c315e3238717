// The timeline: every step a row, side by side on one scale of time; only the rows in sight are elements.
"use strict";

const ROW = 22;
const WIDE = 20;
const KINDS = ["branch", "task", "model", "tool", "context", "subtask", "wait"];
const SPARKS = 60;

// The time as it is drawn: while people are waited for and nothing else happens, a long pause is drawn short.
class Axis {
  constructor(run) {
    this.begin = run.begin;
    this.pauses = [];
    this.waited = 0;
    const waits = [], busy = [];
    for (const node of run.nodes.values()) {
      const extent = [node.begin, node.until === null ? run.end : node.until];
      if (node.kind === "wait" && PEOPLE.has(node.start.reason)) waits.push(extent);
      else if (!node.children.length) busy.push(extent);
    }
    if (!waits.length) return;
    for (const [from, until] of without(united(waits), united(busy))) { this.pauses.push({ from, until, cut: 0 }); this.waited += until - from; }
    const rest = Math.max(run.end - run.begin - this.waited, 1e-3);
    for (const pause of this.pauses) pause.cut = Math.max(0, pause.until - pause.from - rest * PAUSE);
    this.pauses = this.pauses.filter((pause) => pause.cut > 0);
  }

  // Seconds of the axis from the begin to a time.
  drawn(time) {
    let at = time - this.begin;
    for (const { from, until, cut } of this.pauses) if (time > from) at -= cut * Math.min(1, (time - from) / (until - from));
    return at;
  }

  // The seconds after the begin that stand at a point of the axis.
  real(drawn) {
    let passed = 0;
    for (const { from, until, cut } of this.pauses) {
      const left = from - this.begin - passed, wide = until - from - cut;
      if (drawn <= left) break;
      if (drawn < left + wide) return from - this.begin + ((drawn - left) / wide) * (until - from);
      passed += cut;
    }
    return drawn + passed;
  }
}

const PEOPLE = new Set(["approval", "question", "signal"]);
const PAUSE = 0.06;  // how long a long pause is drawn, as a part of the time without such pauses

// Intervals in order, those that touch as one.
function united(intervals) {
  const whole = [];
  for (const [from, until] of intervals.sort((a, b) => a[0] - b[0])) {
    const last = whole[whole.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], until); else whole.push([from, until]);
  }
  return whole;
}

// What is left of intervals without others; both united.
function without(intervals, others) {
  const left = [];
  let at = 0;
  for (let [from, until] of intervals) {
    while (at < others.length && others[at][1] <= from) at += 1;
    for (let each = at; each < others.length && others[each][0] < until; each += 1) {
      if (others[each][0] > from) left.push([from, others[each][0]]);
      from = Math.max(from, others[each][1]);
    }
    if (from < until) left.push([from, until]);
  }
  return left;
}

class Timeline {
  constructor(view) {
    this.view = view; this.run = view.run; this.axis = new Axis(view.run);
    this.closed = new Set(); this.seen = new Set(); this.only = new Set(); this.text = "";
    this.zoom = 1; this.from = 0; this.rows = []; this.slots = []; this.folds = new Map(); this.pending = false;
    this.search = element("input", { type: "search", placeholder: "Filter by name, path or text", "aria-label": "filter",
      oninput: () => { this.text = this.search.value.toLowerCase(); this.filter(); } });
    this.chips = element("div", { class: "chips" });
    this.list = element("div", { class: "rows", tabindex: "0", role: "tree", "aria-label": "timeline",
      onscroll: () => this.later(), onkeydown: (event) => this.key(event), onwheel: (event) => this.wheel(event) });
    this.spacer = this.list.appendChild(element("div"));
    this.grid = element("div", { class: "grid", "aria-hidden": "true" });
    this.empty = element("p", { class: "empty", hidden: true });
    this.window = element("input", { type: "range", min: "0", max: "1000", "aria-label": "what part of the time is shown", hidden: true,
      oninput: () => { this.from = (Number(this.window.value) / 1000) * (this.whole() - this.shown()); this.redraw(); } });
    this.legend = element("div", { class: "legend" });
    this.box = element("section", { class: "timeline-pane" },
      element("div", { class: "bar" }, this.search, this.chips, this.window,
        element("button", { type: "button", class: "icon", title: "zoom out (-)", onclick: () => this.scale(0.5) }, "−"),
        element("button", { type: "button", class: "icon", title: "zoom in (+)", onclick: () => this.scale(2) }, "+")),
      element("div", { class: "chart" }, this.grid, this.list, this.empty), this.legend);
    addEventListener("resize", () => this.redraw(), { signal: view.left.signal });
  }

  whole() { return this.axis.drawn(this.run.end) || 1e-6; }
  shown() { return this.whole() / this.zoom; }

  // Take what has been folded since: forms with many branches begin folded.
  update() {
    for (const node of this.run.nodes.values())
      for (const [, group] of groupsOf(node)) {
        const key = groupKey(node, group);
        if (group.length > WIDE && !this.seen.has(key)) { this.seen.add(key); this.closed.add(key); }
      }
    this.drawChips();
    this.drawLegend();
    this.refresh();
  }

  drawChips() {
    const run = this.run, cost = run.finish && run.finish.cost_usd;
    const chips = [["failed", run.failures.length], ["slow", 0], ["costly", 0], ["critical", 0], ...KINDS.map((kind) => [kind, run.kinds[kind]])];
    const worth = (name, number) => (name === "slow" || name === "critical" ? run.nodes.size > 2 : name === "costly" ? cost : number);
    this.chips.replaceChildren(...chips.filter(([name, number]) => worth(name, number)).map(([name, number]) =>
      element("button", { type: "button", class: `chip ${name}`, "aria-pressed": String(this.only.has(name)), "data-chip": name,
        onclick: (event) => this.toggle(name, event.currentTarget) }, name, number ? element("small", {}, count(number)) : null)));
  }

  drawLegend() {
    const reasons = new Set();
    for (const node of this.run.nodes.values()) if (node.kind === "wait") reasons.add(node.start.reason);
    const swatch = (css, text) => element("span", {}, element("i", { class: `span ${css}` }), text);
    this.legend.replaceChildren(
      ...KINDS.filter((kind) => this.run.kinds[kind] && kind !== "wait").map((kind) => swatch(kind, kind)),
      ...[...reasons].sort().map((reason) => swatch(`wait ${reason}`, `waits for ${REASONS[reason] || reason}`)),
      this.run.nodes.size > 2 ? swatch("critical", "what the end waited for") : null,
      ...this.run.sources.names.slice(0, SHADES).map((name) => this.run.sources.swatch(name)),
      element("span", { class: "keys" }, "/ filter · ↑↓ rows · ←→ fold · Enter details · + − zoom · Esc close"));
    for (const part of [...this.legend.childNodes]) if (part.nodeType === 3) part.remove();
  }

  // -- which rows there are

  toggle(name, button) {
    if (!this.only.delete(name)) this.only.add(name);
    button.setAttribute("aria-pressed", String(this.only.has(name)));
    this.filter();
  }

  clear() {
    this.only.clear(); this.text = this.search.value = "";
    for (const chip of this.chips.children) chip.setAttribute("aria-pressed", "false");
    this.view.program.unpick();
    this.filter();
  }

  filter() { this.list.scrollTop = 0; this.refresh(); }

  kept() {
    const run = this.run, site = this.view.program.site;
    if (!this.text && !this.only.size && !site) return null;
    const kept = new Set(), kinds = KINDS.filter((kind) => this.only.has(kind)), within = site ? new Set(site.nodes) : null;
    const slow = this.whole() / 20, total = (run.finish && run.finish.cost_usd) || 0;
    for (const node of run.nodes.values()) {
      if (within && !within.has(node) && !(node.parent && within.has(node.parent))) continue;
      if (kinds.length && !kinds.includes(node.kind)) continue;
      if (this.only.has("failed") && node.state !== "failed") continue;
      if (this.only.has("critical") && !node.critical) continue;
      if (this.only.has("slow") && lasted(node, run) < slow) continue;
      if (this.only.has("costly") && !((costOf(node) || 0) > total / 20)) continue;
      if (this.text && !searchText(node).includes(this.text)) continue;
      for (let at = node; at && !kept.has(at); at = at.parent) kept.add(at);
    }
    return kept;
  }

  refresh() {
    const kept = this.kept(), rows = [];
    const visit = (node) => {
      if (kept && !kept.has(node)) return;
      rows.push(node);
      if (this.closed.has(node)) return;
      for (const [form, group] of groupsOf(node)) {
        if (form === null || group.length <= WIDE) { group.forEach(visit); continue; }
        if (kept && !group.some((each) => kept.has(each))) continue;
        const fold = this.fold(node, form, group);
        rows.push(fold);
        if (!this.closed.has(fold.key) || kept) group.forEach(visit);
      }
    };
    this.run.roots.forEach(visit);
    this.rows = rows;
    this.empty.hidden = rows.length > 1 || (rows.length === 1 && !kept);
    if (!this.empty.hidden) this.empty.replaceChildren(kept ? "No step fits the filter. " : "Nothing has happened yet.",
      kept ? element("button", { type: "button", onclick: () => this.clear() }, "show everything") : "");
    this.spacer.style.height = `${rows.length * ROW}px`;
    this.redraw();
  }

  fold(node, form, group) {
    const key = groupKey(node, group);
    if (!this.folds.has(key)) this.folds.set(key, { form, key, depth: node.depth + 1, kind: "group" });
    const fold = this.folds.get(key);
    if (fold.fold !== group) { fold.fold = group; fold.sum = null; }
    return fold;
  }

  toggleFold(row) {
    const key = row.fold ? row.key : row;
    if (!this.closed.delete(key)) this.closed.add(key);
    this.refresh();
  }

  // Open what stands around a node.
  open(node) {
    for (let at = node; at.parent; at = at.parent) {
      this.closed.delete(at.parent);
      for (const [, group] of groupsOf(at.parent)) if (group.includes(at)) this.closed.delete(groupKey(at.parent, group));
    }
  }

  // -- time

  scale(factor, share = 0.5) {
    const about = this.from + this.shown() * share;
    this.zoom = Math.min(4096, Math.max(1, this.zoom * factor));
    this.look(about - this.shown() * share);
  }

  // Show the time from `from` on, in seconds of the axis.
  look(from) { this.from = Math.max(0, Math.min(this.whole() - this.shown(), from)); this.redraw(); }

  wheel(event) {
    const track = this.grid.getBoundingClientRect();
    if (event.ctrlKey) { event.preventDefault(); this.scale(event.deltaY < 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - track.left) / track.width))); }
    else if (this.zoom > 1 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
      event.preventDefault();
      this.look(this.from + ((event.deltaX || event.deltaY) / track.width) * this.shown());
    }
  }

  drawGrid() {
    const span = this.shown(), rough = span / Math.max(2, Math.min(8, this.grid.clientWidth / 84)), power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5].find((each) => each * power >= rough) || 10);
    const marks = [];
    for (let at = Math.ceil(this.from / step) * step; at < this.from + span * 0.94; at += step) {
      const mark = element("span", {}, at < step / 2 ? "0" : seconds(this.axis.real(at)));
      mark.style.left = `${((at - this.from) / span) * 100}%`;
      marks.push(mark);
    }
    for (const pause of this.axis.pauses) {
      const left = ((this.axis.drawn((pause.from + pause.until) / 2) - this.from) / span) * 100;
      if (left < 0 || left > 94) continue;
      const mark = element("span", { class: "pause", title: "people were waited for, and nothing else happened: drawn shorter" }, `⋯ ${seconds(pause.until - pause.from)}`);
      mark.style.left = `${left}%`;
      marks.push(mark);
    }
    this.grid.style.marginRight = `${this.list.offsetWidth - this.list.clientWidth}px`;
    this.grid.replaceChildren(...marks);
    this.window.hidden = this.zoom <= 1;
    if (this.zoom > 1) this.window.value = String((this.from / (this.whole() - this.shown())) * 1000);
  }

  // -- drawing

  later() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); });
  }

  redraw() {
    for (const slot of this.slots) slot.at = -1;
    this.drawGrid();
    this.draw();
  }

  // Rows in sight, in elements that are used again and again: row `at` stands in slot `at % slots`.
  draw(height = this.list.clientHeight) {
    const wanted = Math.ceil(height / ROW) + 6;
    while (this.slots.length < wanted) this.slots.push(new Slot(this));
    while (this.slots.length > wanted) this.slots.pop().box.remove();
    const slots = this.slots.length, first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 3);
    for (let at = first; at < first + slots; at += 1) {
      const slot = this.slots[at % slots];
      if (slot.at === at) continue;
      slot.at = at;
      if (at < this.rows.length) slot.fill(this.rows[at]); else slot.hide();
    }
  }

  // What of a bar is in sight: left and width in percent, or null.
  extent(begin, until) {
    const span = this.shown(), left = ((this.axis.drawn(begin) - this.from) / span) * 100;
    const right = ((this.axis.drawn(until) - this.from) / span) * 100;
    if (right < 0 || left > 100) return null;
    return [Math.max(-1, left), Math.min(101, right) - Math.max(-1, left)];
  }

  key(event) {
    const chosen = this.view.chosen, at = this.rows.indexOf(chosen), page = Math.floor(this.list.clientHeight / ROW) - 1;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.shiftKey && event.key.startsWith("Arrow")) { event.preventDefault(); this.look(this.from + this.shown() * (event.key === "ArrowRight" ? 0.2 : event.key === "ArrowLeft" ? -0.2 : 0)); }
    else if (step) { event.preventDefault(); this.move(Math.min(this.rows.length - 1, Math.max(0, at + step))); }
    else if (event.key === "Enter" && chosen) { if (chosen.fold) this.toggleFold(chosen); else { this.view.details(chosen); this.view.drawer.box.focus(); } }
    else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && chosen) {
      event.preventDefault();
      if (this.closed.has(chosen.fold ? chosen.key : chosen) === (event.key === "ArrowRight")) this.toggleFold(chosen);
    } else if (event.key === "+" || event.key === "-") this.scale(event.key === "+" ? 2 : 0.5);
    else if (event.key === "0") { this.zoom = 1; this.look(0); }
  }

  // Choose a row and bring it into sight.
  move(at) {
    const row = this.rows[at];
    if (!row) return;
    this.view.chosen = row;
    const top = at * ROW;
    if (top < this.list.scrollTop || top > this.list.scrollTop + this.list.clientHeight - ROW) this.list.scrollTop = Math.max(0, top - this.list.clientHeight / 2);
    this.redraw();
    if (!row.fold && !this.view.drawer.box.hidden) this.view.details(row);
  }
}

// The elements of one row.
class Slot {
  constructor(timeline) {
    this.timeline = timeline; this.at = -1; this.row = null;
    this.mark = element("span", { class: "fold" });
    this.name = element("span", { class: "name" });
    this.kind = element("span", { class: "kind" });
    this.bar = element("span", { class: "span" });
    this.spark = element("span", { class: "spark" });
    this.track = element("span", { class: "track" }, this.spark, this.bar);
    this.length = element("span", { class: "length" });
    this.from = element("span", { class: "source-mark", hidden: true });
    this.label = element("span", { class: "label" }, this.mark, this.name, this.from, this.kind);
    this.box = element("div", { class: "row", role: "treeitem", onclick: (event) => this.click(event), ondblclick: () => this.zoomIn() }, this.label, this.track, this.length);
    timeline.list.append(this.box);
  }

  hide() { this.box.hidden = true; this.row = null; }

  fill(row) {
    const timeline = this.timeline, run = timeline.run, group = row.fold;
    const sum = group ? (row.sum ||= summed(group, run)) : { begin: row.begin, until: row.until === null ? run.end : row.until, state: row.state, critical: row.critical };
    this.row = row; this.begin = sum.begin; this.until = sum.until;
    const foldable = group || groupsOf(row).length > 0, open = foldable && !timeline.closed.has(group ? row.key : row);
    this.box.hidden = false;
    this.box.style.transform = `translateY(${this.at * ROW}px)`;
    this.box.classList.toggle("chosen", timeline.view.chosen === row);
    if (foldable) this.box.setAttribute("aria-expanded", String(open)); else this.box.removeAttribute("aria-expanded");
    this.box.setAttribute("aria-level", String(row.depth + 1));
    this.label.style.paddingLeft = `${Math.min(row.depth, 16) * 12 + 6}px`;
    this.mark.textContent = foldable ? (open ? "▾" : "▸") : "";
    this.name.textContent = sum.ended === undefined ? visible(row.label) : `${row.form} ${count(sum.ended)}/${count(group.length)}`;
    this.name.title = this.name.textContent;
    this.colour(group ? sourcesOfAll(group) : sourcesOf(row), run);
    this.kind.textContent = sum.failed ? `${count(sum.failed)} failed` : row.kind === "model" && row.label === "model" ? "" : SAID[row.kind] || "";
    this.kind.classList.toggle("failed-text", Boolean(sum.failed));
    this.box.classList.toggle("failed-text", sum.state === "failed");
    const extent = timeline.extent(sum.begin, sum.until), [left, width] = extent || [0, 0];
    this.bar.hidden = !extent;
    this.bar.className = `span ${row.kind} ${row.kind === "wait" ? row.start.reason : ""} ${sum.state === "ok" ? "" : sum.state}${sum.critical && row.parent !== null ? " critical" : ""}`;
    this.bar.style.left = this.spark.style.left = `min(${left}%, 100% - 3px)`;
    this.bar.style.width = this.spark.style.width = `${width}%`;
    this.spark.hidden = !group || timeline.zoom > 1;
    if (!this.spark.hidden) this.spark.style.clipPath = sparkline(group, sum, run, timeline.axis);
    this.length.textContent = seconds(sum.until - sum.begin);
  }

  // A mark in the colours of what the step's value came from.
  colour(names, run) {
    this.from.hidden = !names.length;
    this.from.title = names.length ? visible(`comes from ${names.join(", ")}`) : "";
    this.from.style.background = names.length ? run.sources.stripes(names) : "";
  }

  click(event) {
    this.timeline.list.focus({ preventScroll: true });
    if (event.target === this.mark || this.row.fold) this.timeline.toggleFold(this.row);
    else this.timeline.view.choose(this.row, false);
  }

  zoomIn() {
    const timeline = this.timeline, { axis } = timeline, length = Math.max(axis.drawn(this.until) - axis.drawn(this.begin), timeline.whole() / 4096);
    timeline.zoom = Math.min(4096, Math.max(1, timeline.whole() / (length * 1.2)));
    timeline.look(axis.drawn(this.begin) - length * 0.1);
  }
}

const SAID = { branch: "", model: "model", tool: "tool", context: "lookup", subtask: "subtask", attempt: "" };

function groupKey(node, group) { return `${node.seq}:${group[0].seq}`; }

function summed(group, run) {
  const sum = { begin: Infinity, until: 0, ended: 0, failed: 0, critical: false, state: stateOf(group) };
  for (const node of group) {
    sum.begin = Math.min(sum.begin, node.begin);
    sum.until = Math.max(sum.until, node.until === null ? run.end : node.until);
    sum.ended += node.end !== null; sum.failed += node.state === "failed"; sum.critical ||= node.critical;
  }
  return sum;
}

// How many branches of a form were at work, over its time, as the outline of an area.
function sparkline(group, sum, run, axis) {
  const counts = new Array(SPARKS).fill(0), begin = axis.drawn(sum.begin), step = (axis.drawn(sum.until) - begin) / SPARKS || 1e-9;
  for (const node of group) {
    const first = Math.max(0, Math.floor((axis.drawn(node.begin) - begin) / step)), last = (axis.drawn(node.until === null ? run.end : node.until) - begin) / step;
    for (let at = first; at < SPARKS && at < last; at += 1) counts[at] += 1;
  }
  const most = Math.max(1, ...counts);
  const corner = (at, each) => `${((at / SPARKS) * 100).toFixed(2)}% ${(100 - (each / most) * 100).toFixed(1)}%`;
  return `polygon(0% 100%, ${counts.map((each, at) => `${corner(at, each)}, ${corner(at + 1, each)}`).join(", ")}, 100% 100%)`;
}

function searchText(node) {
  if (node.search === undefined || node.searched !== node.end) {
    const said = [node.label, node.kind, node.path, errorText(node), gave(node), ...sourcesOf(node)];
    if (node.kind === "tool") said.push(JSON.stringify(node.start.arguments || ""));
    node.search = said.join("\n").slice(0, 20000).toLowerCase();
    node.searched = node.end;
  }
  return node.search;
}
