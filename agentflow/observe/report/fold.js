// Events folded into a run: one function, `apply(event)`, for a report that is opened and for a page that is fed live.
"use strict";

const STATES = { ok: "ok", failed: "failed", error: "failed", cancelled: "stopped", suspended: "stopped" };

class Run {
  constructor() {
    this.nodes = new Map();      // seq of the Started event -> node
    this.roots = [];
    this.programs = new Map();   // name -> text
    this.sites = new Map();      // "name:line:column:end_line:end_column" -> site
    this.warnings = [];
    this.id = ""; this.name = ""; this.labels = {};
    this.begin = Infinity; this.end = 0;
    this.finish = null; this.firstError = null;
    this.open = 0; this.widest = 0; this.folded = 0;
    this.part = 1; this.base = 0;
  }

  // Take one event; events of later slices of a run follow those of earlier ones.
  apply(event) {
    if (event.slice !== undefined && event.slice !== this.part) { this.part = event.slice; this.base += 1e7; }
    const key = (seq) => (seq === null || seq === undefined ? null : this.base + seq);
    this.begin = Math.min(this.begin, event.time);
    this.end = Math.max(this.end, event.time);
    const type = event.type;
    if (type === "program_loaded") { if (!this.programs.has(event.name)) this.programs.set(event.name, event.text); return; }
    if (type === "run_started" && !this.id) { this.id = event.run_id || ""; this.name = event.name; this.labels = event.labels || {}; }
    if (type.endsWith("_started")) this.#start(event, key);
    else if (type.endsWith("_finished")) this.#finish(event, key);
    else this.#note(event, key);
  }

  #start(event, key) {
    const parent = this.nodes.get(key(event.parent)) || null;
    const node = { seq: key(event.seq), kind: event.type.slice(0, -8), start: event, end: null, parent, children: [], notes: [],
      begin: event.time, until: null, state: "running", path: event.path, span: event.span, depth: parent ? parent.depth + 1 : 0,
      critical: false, label: "" };
    node.label = labelOf(node);
    this.nodes.set(node.seq, node);
    (parent ? parent.children : this.roots).push(node);
    const site = this.#site(node);
    if (site) site.nodes.push(node);
    if (node.kind === "branch" || node.kind === "run") { this.open += 1; this.widest = Math.max(this.widest, this.open); }
  }

  #finish(event, key) {
    const node = this.nodes.get(key(event.started));
    if (!node || node.end) return;
    node.end = event;
    node.until = event.time;
    node.state = STATES[event.outcome] || "ok";
    if (node.kind === "branch" || node.kind === "run") this.open -= 1;
    if (node.state === "failed" && !this.firstError && node.kind !== "attempt") this.firstError = node;
    if (node.kind === "run" && !node.parent) this.finish = event;
    if (event.folded) this.folded += event.folded;
  }

  #note(event, key) {
    const node = this.nodes.get(key(event.parent));
    if (event.type === "warning") this.warnings.push(event);
    if (node) node.notes.push(event);
  }

  #site(node) {
    const at = node.span;
    if (!at || node.kind === "run" || node.kind === "attempt") return null;
    // what a task does within itself has the place of the call: the call alone counts for it
    if (node.parent && node.kind !== "branch" && sameSpan(node.parent.span, at) && node.parent.kind !== "run" && node.parent.kind !== "branch") return null;
    const name = [at.source, at.line, at.column, at.end_line, at.end_column].join("\u0000");
    if (!this.sites.has(name)) this.sites.set(name, { at, nodes: [] });
    return this.sites.get(name);
  }
}

function sameSpan(a, b) {
  return a && b && a.source === b.source && a.line === b.line && a.column === b.column && a.end_line === b.end_line && a.end_column === b.end_column;
}

function labelOf(node) {
  const e = node.start;
  switch (node.kind) {
    case "run": return e.name || "run";
    case "branch": return `${e.form} [${e.index}]`;
    case "model": return e.model || "model";
    case "attempt": return `attempt ${e.number}`;
    case "wait": return `waits for ${e.reason}`;
    case "context": return "context";
    case "subtask": return `subtask ${(e.request && (e.request.name || e.request.subtype)) || ""}`;
    default: return e.name || node.kind;
  }
}

// The time a node took, in seconds; of one that has not ended, until now.
function lasted(node, run) { return Math.max(0, (node.until === null ? run.end : node.until) - node.begin); }

function usageOf(node) { return (node.end && node.end.usage) || null; }

function costOf(node) {
  if (node.end && typeof node.end.cost_usd === "number") return node.end.cost_usd;
  let sum = 0, any = false;
  for (const child of node.children) { const cost = costOf(child); if (cost !== null) { sum += cost; any = true; } }
  return any ? sum : null;
}

// Mark what the end waited for: walking back, of the children the one that ended last.
function markCritical(run) {
  for (const node of run.nodes.values()) node.critical = false;
  const pending = run.roots.slice();
  while (pending.length) {
    const node = pending.pop();
    node.critical = true;
    let limit = node.until === null ? Infinity : node.until + 1e-6;
    const children = node.children.slice().sort((a, b) => endOf(b) - endOf(a));
    for (const child of children) {
      if (endOf(child) > limit) continue;
      pending.push(child);
      limit = child.begin + 1e-6;
    }
  }
}

function endOf(node) { return node.until === null ? Infinity : node.until; }

// The state of a form that ran many times: the worst, a form that still runs before one that has ended.
function stateOf(nodes) {
  const states = new Set(nodes.map((node) => node.state));
  for (const state of ["failed", "running", "stopped"]) if (states.has(state)) return state;
  return "ok";
}
