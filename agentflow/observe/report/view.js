// The page: head, program, timeline and drawer over one folded run, or two beside each other.
"use strict";

const ROW = 22;
const KINDS = ["branch", "task", "model", "tool", "context", "wait"];

class View {
  constructor(run, other, wires) {
    this.run = run; this.other = other; this.wires = wires;
    this.closed = new Set(); this.only = new Set(); this.text = ""; this.site = null; this.chosen = null;
    this.heat = "state"; this.zoom = 1; this.from = 0; this.rows = []; this.drawn = new Map(); this.folds = new Map(); this.pending = false;
    this.foldWide();
    markCritical(run);
    this.build();
    this.refresh();
  }

  // Forms with many branches begin folded.
  foldWide() {
    for (const node of this.run.nodes.values())
      for (const [, group] of groupsOf(node)) if (group.length > 20) this.closed.add(groupKey(node, group));
  }

  build() {
    const run = this.run;
    document.title = `${run.name || run.id} - agentflow`;
    const chips = ["failed", "slow", "costly", ...KINDS].map((name) =>
      element("button", { type: "button", "aria-pressed": "false", "data-chip": name, onclick: (event) => this.toggle(name, event.currentTarget) }, name));
    this.search = element("input", { type: "search", placeholder: "filter: name, path, text", "aria-label": "filter",
      oninput: () => { this.text = this.search.value.toLowerCase(); this.refresh(); } });
    this.head = element("header");
    const theme = element("button", { type: "button", title: "light or dark", onclick: () => {
      const root = document.documentElement;
      root.dataset.theme = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark" ? "light" : "dark";
    } }, "theme");
    this.bar = element("div", { class: "bar" }, this.search, chips, theme);
    this.colour = element("select", { "aria-label": "colour by", onchange: () => { this.heat = this.colour.value; this.drawProgram(); } },
      [["state", "by state"], ["time", "by time"], ["cost", "by cost"]].map(([value, text]) => element("option", { value }, text)));
    this.tabs = element("select", { "aria-label": "program", onchange: () => this.drawProgram() },
      [...run.programs.keys()].map((name) => element("option", { value: name }, visible(name))));
    this.times = element("select", { "aria-label": "occurrence", hidden: true, onchange: () => this.choose(this.site.nodes[Number(this.times.value)], false) });
    this.program = element("pre", { class: "program", tabindex: "0", "aria-label": "program" });
    this.list = element("div", { class: "rows", tabindex: "0", role: "tree", "aria-label": "timeline", onscroll: () => this.later(), onkeydown: (event) => this.key(event) });
    this.ruler = element("div", { class: "ruler" });
    this.aside = element("aside", { hidden: true, tabindex: "0", "aria-label": "details" });
    this.main = element("main", {},
      element("section", {}, element("div", { class: "bar" }, this.tabs, this.colour, this.times), this.program),
      element("section", {}, element("div", { class: "bar" },
        element("button", { type: "button", title: "zoom in (+)", onclick: () => this.scale(2) }, "+"),
        element("button", { type: "button", title: "zoom out (-)", onclick: () => this.scale(0.5) }, "−"),
        this.other ? element("button", { type: "button", id: "compare", "aria-pressed": "false", onclick: (event) => this.compare(event.currentTarget) }, "difference") : null,
        element("span", { class: "legend" }, "/ filter · ↑↓ rows · ←→ fold · Enter details · Esc close")), this.ruler, this.list),
      this.aside);
    document.body.replaceChildren(this.head, this.main);
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && event.target.tagName !== "INPUT") { event.preventDefault(); this.search.focus(); }
      if (event.key === "Escape") this.close();
    });
    addEventListener("resize", () => this.later());
    this.drawHead(); this.drawProgram();
  }

  drawHead() {
    const run = this.run, finish = run.finish, usage = (finish && finish.usage) || {};
    let calls = 0, tasks = 0;
    for (const node of run.nodes.values()) { if (node.kind === "model") calls += 1; if (node.kind === "task") tasks += 1; }
    const cached = usage.input_tokens ? Math.round((100 * (usage.cache_read_tokens || 0)) / usage.input_tokens) : 0;
    const outcome = finish ? finish.outcome : "running";
    const figure = (name, value, css) => element("li", {}, element("span", {}, `${name} `), element("b", { class: css || null }, value));
    const state = STATES[outcome];
    const error = run.firstError;
    this.head.replaceChildren(
      element("h1", {}, visible(run.name || "run")),
      element("span", { class: "legend" }, visible(`${run.id} ${Object.entries(run.labels).map(([k, v]) => `${k}=${v}`).join(" ")}`)),
      element("ul", { class: "figures" },
        figure("outcome", outcome, state === "failed" ? "failed-text" : state === "stopped" ? "stopped-text" : ""),
        figure("time", seconds(run.end - run.begin)), figure("cost", finish ? money(finish.cost_usd) : "?"),
        figure("tokens", `${count(usage.input_tokens)} in, ${count(usage.output_tokens)} out`), figure("cached", `${cached} %`),
        figure("model calls", count(calls)), figure("tasks", count(tasks)), figure("side by side", count((finish && finish.max_concurrency) || run.widest)),
        run.warnings.length ? figure("warnings", count(run.warnings.length)) : null,
        run.folded ? figure("steps left out", count(run.folded)) : null),
      error ? element("div", { class: "first-error" }, element("button", { type: "button", onclick: () => this.choose(error, true) }, "first failure"), " ", visible(errorText(error).slice(0, 300))) : null,
      this.bar);
  }

  // -- the program

  drawProgram() {
    const name = this.tabs.value, text = this.run.programs.get(name) || "";
    const lines = text.split("\n"), starts = [0];
    for (const line of lines) starts.push(starts[starts.length - 1] + line.length + 1);
    const offset = (line, column) => {
      const whole = lines[line - 1] || "";
      // columns count characters, JavaScript counts UTF-16 units
      return starts[line - 1] + (/^[\x00-\x7f]*$/.test(whole) ? column - 1 : [...whole].slice(0, column - 1).join("").length);
    };
    const sites = [...this.run.sites.values()].filter((site) => site.at.source === name)
      .map((site) => ({ site, start: offset(site.at.line, site.at.column), end: offset(site.at.end_line, site.at.end_column) }))
      .filter((each) => each.end > each.start && each.end <= text.length).sort((a, b) => a.start - b.start || b.end - a.end);
    const total = this.heat === "time" ? this.run.end - this.run.begin : (this.run.finish && this.run.finish.cost_usd) || 0;
    this.program.classList.toggle("heat", this.heat !== "state");
    const stack = [{ box: document.createDocumentFragment(), end: text.length }];
    let at = 0;
    const say = (until) => { if (until > at) stack[stack.length - 1].box.append(visible(text.slice(at, until))); at = Math.max(at, until); };
    for (const each of sites) {
      while (stack.length > 1 && stack[stack.length - 1].end <= each.start) { say(stack[stack.length - 1].end); stack.pop(); }
      if (each.end > stack[stack.length - 1].end) continue;
      say(each.start);
      const nodes = each.site.nodes;
      const box = element("span", { class: `site ${stateOf(nodes)}${this.site === each.site ? " chosen" : ""}`, title: this.about(nodes),
        onclick: (event) => { event.stopPropagation(); this.pick(each.site); } });
      box.site = each.site;
      if (this.heat !== "state") {
        let share = 0;
        for (const node of nodes) share += this.heat === "time" ? lasted(node, this.run) : costOf(node) || 0;
        box.style.setProperty("--heat", String(Math.min(1, total ? share / total : 0)));
      }
      stack[stack.length - 1].box.append(box);
      stack.push({ box, end: each.end });
    }
    while (stack.length) { say(stack[stack.length - 1].end); if (stack.length === 1) break; stack.pop(); }
    this.program.replaceChildren(stack[0].box);
  }

  about(nodes) {
    let time = 0, most = 0, tokens = 0, cost = 0, failed = 0;
    for (const node of nodes) {
      const length = lasted(node, this.run);
      time += length; most = Math.max(most, length); failed += node.state === "failed";
      const usage = usageOf(node); if (usage) tokens += (usage.input_tokens || 0) + (usage.output_tokens || 0);
      cost += costOf(node) || 0;
    }
    return `${nodes.length} times, ${failed} failed, ${seconds(time)} in all, ${seconds(most)} at most, ${count(tokens)} tokens, ${money(cost)}`;
  }

  pick(site) {
    this.site = this.site === site ? null : site;
    const nodes = this.site ? this.site.nodes : [];
    this.times.hidden = nodes.length < 2;
    this.times.replaceChildren(...nodes.slice(0, 2000).map((node, at) => element("option", { value: String(at) }, `${at + 1} of ${nodes.length}: ${node.path} ${node.state}`)));
    this.drawProgram(); this.refresh();
    if (nodes.length) this.choose(nodes[0], false);
  }

  // -- the timeline

  toggle(name, button) {
    if (!this.only.delete(name)) this.only.add(name);
    button.setAttribute("aria-pressed", String(this.only.has(name)));
    this.refresh();
  }

  kept() {
    if (!this.text && !this.only.size && !this.site) return null;
    const run = this.run, kept = new Set(), kinds = KINDS.filter((kind) => this.only.has(kind));
    const slow = (run.end - run.begin) / 20, total = (run.finish && run.finish.cost_usd) || 0;
    const within = this.site ? new Set(this.site.nodes) : null;
    for (const node of run.nodes.values()) {
      if (within && !within.has(node) && !(node.parent && within.has(node.parent))) continue;
      if (kinds.length && !kinds.includes(node.kind)) continue;
      if (this.only.has("failed") && node.state !== "failed") continue;
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
        if (form === null || group.length <= 20) { group.forEach(visit); continue; }
        const key = groupKey(node, group);
        if (!this.folds.has(key)) this.folds.set(key, { form, key, depth: node.depth + 1, kind: "group" });
        const fold = this.folds.get(key);
        fold.fold = group; fold.sum = null;
        if (kept && !group.some((each) => kept.has(each))) continue;
        rows.push(fold);
        if (!this.closed.has(fold.key) || kept) group.forEach(visit);
      }
    };
    this.run.roots.forEach(visit);
    this.rows = rows;
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
    this.spacer = this.spacer || this.list.appendChild(element("div"));
    this.spacer.style.height = `${rows.length * ROW}px`;
    this.drawRuler();
    this.draw();
  }

  later() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); });
  }

  scale(factor) {
    this.zoom = Math.min(4096, Math.max(1, this.zoom * factor));
    const run = this.run, whole = run.end - run.begin, about = this.chosen && this.chosen.begin ? this.chosen.begin - run.begin : this.from + whole / this.zoom / 2;
    this.from = Math.max(0, Math.min(whole - whole / this.zoom, about - whole / this.zoom / 2));
    this.refresh();
  }

  drawRuler() {
    const whole = (this.run.end - this.run.begin) / this.zoom || 1e-6;
    this.ruler.replaceChildren(...[0, 0.25, 0.5, 0.75].map((share) => {
      const mark = element("span", {}, seconds(this.from + whole * share) || "0");
      mark.style.left = `${share * 100}%`;
      return mark;
    }));
  }

  draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 8);
    const last = Math.min(this.rows.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / ROW) + 8);
    for (const [at, row] of this.drawn) if (at < first || at >= last) { row.remove(); this.drawn.delete(at); }
    const fresh = document.createDocumentFragment();
    for (let at = first; at < last; at += 1) if (!this.drawn.has(at)) { const row = this.row(this.rows[at], at); this.drawn.set(at, row); fresh.append(row); }
    this.list.append(fresh);
  }

  row(node, at) {
    const run = this.run, whole = (run.end - run.begin) / this.zoom || 1e-6;
    const group = node.fold;
    const sum = group ? (node.sum = node.sum || summed(group, run)) : null;
    const begin = sum ? sum.begin : node.begin;
    const until = sum ? sum.until : node.until === null ? run.end : node.until;
    const state = sum ? sum.state : node.state;
    const foldable = group || groupsOf(node).length > 0;
    const open = group ? !this.closed.has(node.key) : !this.closed.has(node);
    const label = element("span", { class: "label", title: visible(group ? node.form : node.label) },
      element("span", { class: "fold" }, foldable ? (open ? "▾" : "▸") : ""),
      sum ? `${node.form} ${sum.ended}/${group.length}` : visible(node.label),
      sum && sum.failed ? element("b", { class: "failed-text" }, ` ${sum.failed} failed`) : null,
      group ? null : element("i", {}, ` ${node.kind === "task" || node.kind === "run" ? "" : node.kind}`));
    label.style.paddingLeft = `${node.depth * 12}px`;
    const critical = sum ? sum.critical : node.critical;
    const bar = element("span", { class: `span ${group ? "" : node.kind} ${state === "ok" ? "" : state}${critical ? " critical" : ""}` });
    bar.style.left = `${((begin - run.begin - this.from) / whole) * 100}%`;
    bar.style.width = `${Math.max(0, ((until - begin) / whole) * 100)}%`;
    const row = element("div", { class: `row${this.chosen === node ? " chosen" : ""}`, role: "treeitem", "aria-expanded": foldable ? String(open) : null,
      onclick: (event) => { if (event.target.className === "fold" || group) this.foldRow(node); else this.choose(node, false); } },
      label, element("span", { class: "track" }, bar), element("span", { class: "length" }, seconds(until - begin)));
    row.style.top = `${at * ROW}px`;
    return row;
  }

  foldRow(node) {
    const key = node.fold ? node.key : node;
    if (!this.closed.delete(key)) this.closed.add(key);
    this.refresh();
  }

  key(event) {
    const at = this.rows.indexOf(this.chosen);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (step) { event.preventDefault(); this.move(Math.min(this.rows.length - 1, Math.max(0, at + step))); }
    else if (event.key === "Enter" && this.chosen && !this.chosen.fold) { this.details(this.chosen); this.aside.focus(); }
    else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && this.chosen) {
      event.preventDefault();
      const key = this.chosen.fold ? this.chosen.key : this.chosen;
      if (this.closed.has(key) === (event.key === "ArrowRight")) this.foldRow(this.chosen);
    } else if (event.key === "+" || event.key === "-") this.scale(event.key === "+" ? 2 : 0.5);
  }

  move(at) {
    const node = this.rows[at];
    if (!node) return;
    this.chosen = node;
    const top = at * ROW;
    if (top < this.list.scrollTop || top > this.list.scrollTop + this.list.clientHeight - ROW) this.list.scrollTop = top - this.list.clientHeight / 2;
    this.refresh();
    if (!node.fold && !this.aside.hidden) this.details(node);
  }

  choose(node, reveal) {
    if (reveal) {
      this.site = null; this.only.clear(); this.text = this.search.value = "";
      for (const chip of document.querySelectorAll("[data-chip]")) chip.setAttribute("aria-pressed", "false");
      for (let at = node; at; at = at.parent) {
        this.closed.delete(at.parent);
        if (at.parent) for (const [, group] of groupsOf(at.parent)) if (group.includes(at)) this.closed.delete(groupKey(at.parent, group));
      }
    }
    this.chosen = node;
    this.refresh();
    const at = this.rows.indexOf(node);
    if (at >= 0) this.move(at);
    this.details(node);
  }

  close() { this.aside.hidden = true; this.main.classList.remove("open"); this.later(); }

  show(...children) {
    this.aside.replaceChildren(...children.flat(Infinity).filter(Boolean));
    this.aside.hidden = false; this.aside.scrollTop = 0;
    this.main.classList.add("open");
    this.later();
  }

  // -- the drawer

  details(node) {
    const end = node.end || {}, start = node.start, usage = usageOf(node);
    const facts = [["state", end.outcome || "running"], ["path", node.path], ["time", seconds(lasted(node, this.run))], ["began", `after ${seconds(node.begin - this.run.begin) || "0 s"}`]];
    if (node.span) facts.push(["place", `${node.span.source}:${node.span.line}:${node.span.column}`]);
    if (usage) facts.push(["tokens", `${count(usage.input_tokens)} in (${count(usage.cache_read_tokens)} cached), ${count(usage.output_tokens)} out${usage.reasoning_tokens ? ` (${count(usage.reasoning_tokens)} reasoning)` : ""}`]);
    const cost = costOf(node);
    if (cost !== null) facts.push(["cost", money(cost)]);
    if (end.stop_reason) facts.push(["stop reason", end.stop_reason]);
    if (end.request_id) facts.push(["request id", end.request_id]);
    const parts = [element("h2", {}, visible(node.label)), element("dl", { class: "facts" }, facts.map(([name, value]) => [element("dt", {}, name), element("dd", {}, visible(value))])),
      element("div", { class: "bar" }, this.copyButton("copy as JSON", () => JSON.stringify([start, node.end], null, 2)), node.span ? element("button", { type: "button", onclick: () => this.reveal(node) }, "show in the program") : null)];
    const failure = errorOf(node);
    if (failure) parts.push(element("h3", {}, "error"), element("div", { class: "first-error" }, visible(failure.code ? `${failure.code}: ` : ""), visible(failure.message || "")), failure.hint ? element("p", {}, visible(`hint: ${failure.hint}`)) : null);
    if (node.kind === "model") parts.push(...this.modelCall(node));
    else if (node.kind === "tool") parts.push(element("h3", {}, "arguments"), json(start.arguments));
    else if (node.kind === "context") parts.push(element("h3", {}, "question"), json(start.input), element("h3", {}, "found"), json(end.paths));
    else if (start.request) parts.push(element("h3", {}, "request"), json(start.request));
    if (end.result) parts.push(...result(end.result));
    const attempts = node.children.filter((child) => child.kind === "attempt");
    if (attempts.length) parts.push(element("h3", {}, "attempts"), element("ul", {}, attempts.map((each) => element("li", {}, visible(
      `${each.start.number}: ${each.end ? each.end.outcome : "running"}, ${seconds(lasted(each, this.run))}${each.end && each.end.status ? `, HTTP ${each.end.status}` : ""}${each.end && each.end.retry_in_s ? `, again after ${seconds(each.end.retry_in_s)}` : ""} ${errorText(each)}`)))));
    if (node.notes.length) parts.push(element("h3", {}, "notes"), element("ul", {}, node.notes.slice(0, 200).map((note) => element("li", {}, visible(`${note.type}: ${note.message || note.code || note.name || ""}`)))));
    this.show(...parts);
  }

  copyButton(text, make) {
    return element("button", { type: "button", onclick: (event) => {
      const button = event.currentTarget, said = make();
      const done = () => { button.textContent = "copied"; };
      if (navigator.clipboard && isSecureContext) navigator.clipboard.writeText(said).then(done, () => this.offer(said));
      else this.offer(said);
    } }, text);
  }

  // Where nothing can be copied, the text is shown to be selected.
  offer(text) { const area = element("pre", { class: "json", tabindex: "0" }, text); this.aside.prepend(area); getSelection().selectAllChildren(area); }

  reveal(node) {
    const span = node.span;
    if (this.run.programs.has(span.source)) { this.tabs.value = span.source; this.drawProgram(); }
    for (const box of this.program.querySelectorAll(".site")) if (sameSpan(box.site.at, span)) { box.scrollIntoView({ block: "center" }); box.classList.add("chosen"); }
  }

  modelCall(node) {
    const request = node.start.request || {}, response = (node.end && node.end.response) || null;
    const before = previousTurn(node);
    const body = element("div"), buttons = element("div", { class: "bar" });
    const views = {
      messages: () => [request.system ? message("system", [{ type: "text", text: request.system }]) : null, ...(request.messages || []).map((each) => message(each.role, each.parts)),
        response ? message("answer", response.parts) : null, request.tools && request.tools.length ? element("p", {}, visible(`tools: ${request.tools.map((tool) => tool.name || tool).join(", ")}`)) : null],
      JSON: () => [element("h3", {}, "request"), json(request), element("h3", {}, "response"), json(response)],
    };
    if (before) views["since the last turn"] = () => {
      const known = (before.start.request || {}).messages || [], now = request.messages || [];
      let same = 0;
      while (same < known.length && same < now.length && JSON.stringify(known[same]) === JSON.stringify(now[same])) same += 1;
      return [element("p", {}, `${same} messages as before, ${now.length - same} new`), ...now.slice(same).map((each) => message(each.role, each.parts)), response ? message("answer", response.parts) : null];
    };
    const pick = (name) => {
      for (const button of buttons.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === name));
      body.replaceChildren(...views[name]().filter(Boolean));
    };
    buttons.append(...Object.keys(views).map((name) => element("button", { type: "button", "data-view": name, "aria-pressed": "false", onclick: () => pick(name) }, name)));
    const wire = this.wires[node.seq];
    if (wire) buttons.append(this.copyButton("copy as curl", () => curl(wire)));
    if (response) buttons.append(this.copyButton("copy as a test", () => asTest(request, response)));
    pick("messages");
    return [element("h3", {}, "conversation"), buttons, body];
  }

  // -- two runs

  compare(button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    if (!on) { this.close(); return; }
    const rows = joined(this.run, this.other);
    const tally = {};
    for (const row of rows) tally[row.kind] = (tally[row.kind] || 0) + 1;
    const shown = rows.filter((row) => row.kind !== "same");
    this.show(element("h2", {}, "difference"), element("p", {}, visible(`left: ${this.other.name} ${this.other.id}; right: ${this.run.name} ${this.run.id}`)),
      element("dl", { class: "facts" }, Object.entries(tally).map(([kind, number]) => [element("dt", {}, kind), element("dd", {}, count(number))]),
        totals(this.other, this.run).map(([name, a, b]) => [element("dt", {}, name), element("dd", {}, `${a} → ${b}`)])),
      shown.slice(0, 400).map((row) => element("details", { "data-kind": row.kind, ontoggle: (event) => { const box = event.currentTarget; if (box.open && box.children.length === 1) box.append(rowDifference(row)); } },
        element("summary", {}, visible(`${row.kind}: ${(row.after || row.before).label} at ${(row.after || row.before).path}`)))),
      shown.length > 400 ? element("p", {}, `and ${count(shown.length - 400)} more`) : null);
  }
}

function summed(group, run) {
  const sum = { begin: Infinity, until: 0, ended: 0, failed: 0, critical: false, state: stateOf(group) };
  for (const node of group) {
    sum.begin = Math.min(sum.begin, node.begin);
    sum.until = Math.max(sum.until, node.until === null ? run.end : node.until);
    sum.ended += node.end !== null; sum.failed += node.state === "failed"; sum.critical ||= node.critical;
  }
  return sum;
}

// The children of a node: runs of branches of one form together, everything else by itself.
function groupsOf(node) {
  // one attempt that went well says nothing that its call does not say
  if (node.kind === "model" && node.children.length === 1 && node.children[0].kind === "attempt" && node.children[0].state === "ok") return [];
  if (!node.children.some((child) => child.kind === "branch")) return node.children.length ? [[null, node.children]] : [];
  const groups = [], forms = new Map();
  for (const child of node.children) {
    if (child.kind !== "branch") { groups.push([null, [child]]); continue; }
    const key = child.path.replace(/\.\d+$/, "");
    if (!forms.has(key)) { const group = []; forms.set(key, group); groups.push([child.start.form, group]); }
    forms.get(key).push(child);
  }
  return groups;
}

function groupKey(node, group) { return `${node.seq}:${group[0].seq}`; }

function searchText(node) {
  if (node.search === undefined) {
    const said = [node.label, node.kind, node.path, errorText(node)];
    if (node.kind === "tool") said.push(JSON.stringify(node.start.arguments || ""));
    const response = node.end && node.end.response;
    if (response) for (const part of response.parts || []) said.push(part.text || "");
    if (node.end && node.end.result) said.push(String(node.end.result.content || ""));
    node.search = said.join("\n").slice(0, 20000).toLowerCase();
  }
  return node.search;
}

function errorOf(node) {
  const end = node.end;
  if (!end) return null;
  if (end.error) return end.error;
  const notes = end.result && end.result.notes;
  return notes && notes.error ? { code: notes.error.reason, message: notes.error.message || (end.result.content || "") } : null;
}

function errorText(node) { const error = errorOf(node); return error ? `${error.code || ""} ${error.message || ""}`.trim() : ""; }

function json(value) { return element("pre", { class: "json" }, visible(value === undefined ? "" : JSON.stringify(value, null, 2))); }

function result(given) {
  const parts = [element("h3", {}, "result"), element("div", { class: "message" }, element("div", {}, markdown(String(given.content || ""))))];
  if (given.parsedContent !== null && given.parsedContent !== undefined) parts.push(json(given.parsedContent));
  return parts;
}

function message(role, parts) {
  const box = element("div");
  for (const part of parts || []) {
    if (part.type === "text") box.append(markdown(part.text || ""));
    else if (part.type === "tool_call") box.append(element("pre", {}, visible(`${part.name} ${JSON.stringify(part.arguments, null, 2)}`)));
    else if (part.type === "tool_result") box.append(element("pre", {}, visible(`${part.name}: ${part.text}`)));
    else if (part.type === "thinking") box.append(element("em", {}, markdown(part.text || "")));
    else box.append(element("p", {}, `[${part.type}]`));
  }
  return element("div", { class: "message" }, element("b", {}, role), box);
}

function previousTurn(node) {
  const siblings = node.parent ? node.parent.children.filter((child) => child.kind === "model") : [];
  const at = siblings.indexOf(node);
  return at > 0 ? siblings[at - 1] : null;
}

function quoted(text) { return `'${text.replace(/'/g, "'\\''")}'`; }

function curl(wire) {
  const headers = Object.entries(wire.headers).map(([name, value]) => `  -H "${name}: ${value}" \\`);
  return [`curl ${quoted(wire.url)} \\`, ...headers, `  --data-binary ${quoted(JSON.stringify(wire.body))}`].join("\n");
}

function asTest(request, response) {
  const text = (response.parts || []).filter((part) => part.type === "text").map((part) => part.text).join("");
  const calls = (response.parts || []).filter((part) => part.type === "tool_call").map((part) => ({ name: part.name, arguments: part.arguments }));
  const reply = JSON.stringify(calls.length ? { text, tool_calls: calls } : text).replace(/\btrue\b/g, "True").replace(/\bfalse\b/g, "False").replace(/\bnull\b/g, "None");
  const last = (request.messages || []).filter((each) => each.role === "user").pop();
  const asked = last ? (last.parts || []).map((part) => part.text || "").join("") : "";
  return ["from agentflow import AgentFlow, ScriptedProvider", "", "", "async def test_this_call():", `    model = ScriptedProvider([${reply}])`,
    "    async with AgentFlow(provider=model) as flow:", `        result = await flow.handler.execute_prompt(${JSON.stringify(asked)})`, `    assert result.content == ${JSON.stringify(text)}`, ""].join("\n");
}

// -- two runs, joined by path and place

function joinKey(node) { return `${node.kind} ${node.path} ${node.label}`; }

function asked(node) { return JSON.stringify(node.start.arguments ?? node.start.request ?? node.start.input ?? null); }

function answered(node) {
  const end = node.end || {};
  return JSON.stringify(end.result ?? (end.response && end.response.parts) ?? end.paths ?? errorText(node) ?? null);
}

function joined(after, before) {
  const rows = [], known = new Map();
  const counted = (run) => [...run.nodes.values()].filter((node) => ["task", "model", "tool", "context"].includes(node.kind));
  for (const node of counted(before)) { const key = joinKey(node); if (!known.has(key)) known.set(key, []); known.get(key).push(node); }
  for (const node of counted(after)) {
    const twin = (known.get(joinKey(node)) || []).shift();
    if (!twin) rows.push({ kind: "only right", after: node });
    else if (asked(twin) !== asked(node)) rows.push({ kind: "changed input", before: twin, after: node });
    else rows.push({ kind: answered(twin) === answered(node) ? "same" : "changed output", before: twin, after: node });
  }
  for (const rest of known.values()) for (const node of rest) rows.push({ kind: "only left", before: node });
  return rows;
}

function totals(before, after) {
  const of = (run, pick) => pick(run.finish || {}, (run.finish && run.finish.usage) || {});
  return [["time", seconds(before.end - before.begin), seconds(after.end - after.begin)],
    ["tokens", ...[before, after].map((run) => of(run, (f, u) => count((u.input_tokens || 0) + (u.output_tokens || 0))))],
    ["cost", ...[before, after].map((run) => of(run, (f) => money(f.cost_usd)))]];
}

function said(node) {
  const end = node.end || {};
  if (end.response) return (end.response.parts || []).map((part) => part.text || JSON.stringify(part)).join("\n");
  if (end.result) return String(end.result.content || "");
  return JSON.stringify(end.paths || errorText(node), null, 2);
}

function input(node) {
  const request = node.start.request;
  if (node.kind === "model" && request) return [request.system || "", ...(request.messages || []).map((each) => (each.parts || []).map((part) => part.text || JSON.stringify(part)).join("\n"))].join("\n\n");
  return JSON.stringify(node.start.arguments ?? request ?? node.start.input ?? null, null, 2);
}

function rowDifference(row) {
  const box = element("div");
  if (!row.before || !row.after) { const node = row.before || row.after; box.append(json({ asked: input(node), gave: said(node) })); return box; }
  if (asked(row.before) !== asked(row.after)) box.append(element("h3", {}, "input"), difference(input(row.before), input(row.after)));
  if (said(row.before) !== said(row.after)) box.append(element("h3", {}, "output"), difference(said(row.before), said(row.after)));
  return box;
}
