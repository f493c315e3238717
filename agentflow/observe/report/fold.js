// Events folded into a run: one function, `apply(event)`, for a report that is opened and for a page that is fed live.
"use strict";

const STATES = { ok: "ok", failed: "failed", error: "failed", cancelled: "stopped", suspended: "waiting" };
const DELTAS = new Set(["text_delta", "thinking_delta", "tool_arguments_delta", "partial_output", "tool_progress", "loop_progress"]);

class Run {
  constructor() {
    this.nodes = new Map();      // seq of the Started event -> node
    this.roots = [];
    this.programs = new Map();   // name -> text
    this.sites = new Map();      // "name:line:column:end_line:end_column" -> site
    this.warnings = [];
    this.most = {};              // what the program may do at most, as text
    this.sources = new Sources();
    this.id = ""; this.name = ""; this.labels = {};
    this.begin = Infinity; this.end = 0; this.idle = 0;
    this.finish = null; this.failures = [];
    this.open = 0; this.widest = 0; this.folded = 0;
    this.kinds = {};             // how many nodes there are of each kind
    this.part = 1; this.base = 0;
  }

  // Take one event; events of later slices of a run follow those of earlier ones, without the time in which it was away.
  apply(event) {
    if (event.slice !== undefined && event.slice !== this.part) {
      this.part = event.slice; this.base += 1e7;
      if (this.end) this.idle = Math.max(this.idle, event.time - this.end);
    }
    const key = (seq) => (seq === null || seq === undefined ? null : this.base + seq);
    const time = event.time - this.idle;
    this.begin = Math.min(this.begin, time);
    this.end = Math.max(this.end, time);
    const type = event.type;
    if (type === "program_loaded") {
      if (event.host || !this.programs.has(event.name)) this.programs.set(event.name, { text: event.text, language: event.language || "sexp" });
      return;
    }
    if (type === "program_bounds") { this.most = event.most || {}; return; }
    if (type === "run_started" && !this.id) { this.id = event.run_id || ""; this.name = event.name; this.labels = event.labels || {}; }
    if (type.endsWith("_started")) this.#start(event, key, time);
    else if (type.endsWith("_finished")) this.#finish(event, key, time);
    else this.#note(event, key);
  }

  #start(event, key, time) {
    const parent = this.nodes.get(key(event.parent)) || null;
    const node = { seq: key(event.seq), kind: event.type.slice(0, -8), start: event, end: null, parent, children: [], notes: [],
      groups: null, begin: time, until: null, state: "running", path: event.path, span: event.span, depth: parent ? parent.depth + 1 : 0,
      critical: false, label: "" };
    node.label = labelOf(node);
    this.nodes.set(node.seq, node);
    this.sources.take(event.sources);
    (parent ? parent.children : this.roots).push(node);
    if (parent) parent.groups = null;
    this.kinds[node.kind] = (this.kinds[node.kind] || 0) + 1;
    const site = this.#site(node);
    if (site) site.nodes.push(node);
    if (node.kind === "run" && !parent) this.finish = null;  // a run that had waited goes on
    if (node.kind === "branch" || node.kind === "run") { this.open += 1; this.widest = Math.max(this.widest, this.open); }
  }

  #finish(event, key, time) {
    const node = this.nodes.get(key(event.started));
    if (!node || node.end) return;
    node.end = event;
    node.until = time;
    node.state = STATES[event.outcome] || "ok";
    this.sources.take(event.sources);
    if (node.parent) node.parent.groups = null;
    if (node.kind === "branch" || node.kind === "run") this.open -= 1;
    if (node.state === "failed" && node.kind !== "attempt") this.failures.push(node);
    if (node.kind === "run" && !node.parent) this.finish = event;
    if (event.folded) this.folded += event.folded;
  }

  #note(event, key) {
    const node = this.nodes.get(key(event.parent));
    if (event.type === "warning") this.warnings.push(event);
    if (isDenial(event)) this.sources.denials.push({ event, node: node || null });
    if (!node) return;
    if (event.type === "text_delta") node.streamed = (node.streamed || "") + event.text;
    else if (!DELTAS.has(event.type)) node.notes.push(event);
  }

  // The failures that ended something, and not those that a model read and recovered from: its task did not fail.
  endings() { return this.failures.filter((node) => !recovered(node)); }

  // The questions and approvals that a run which has stopped waits for.
  questions() {
    if (!this.finish || this.finish.outcome !== "suspended") return [];
    return [...this.nodes.values()].filter((node) => node.kind === "wait" && node.start.key && node.state !== "ok" && node.seq > this.base);
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

// Whether a step failed within a task that did not: its model read the error.
function recovered(node) {
  let around = node.parent;
  while (around && (around.kind === "branch" || around.kind === "model")) around = around.parent;
  return Boolean(around) && around.kind !== "run" && around.state !== "failed";
}

const REASONS = { permit: "a branch slot", budget: "the budget", rate: "the rate limit", gate: "a free connection", approval: "approval",
  question: "an answer", timer: "time" };

function labelOf(node) {
  const e = node.start;
  switch (node.kind) {
    case "run": return e.name || "run";
    case "branch": return `${e.form} [${e.index}]`;
    case "model": return e.model || "model";
    case "attempt": return `attempt ${e.number}`;
    case "wait": return `waits for ${REASONS[e.reason] || e.reason}`;
    case "context": return "context";
    case "subtask": return (e.request && (e.request.name || e.request.subtype)) || "subtask";
    default: return e.name || node.kind;
  }
}

// The time a node took, in seconds; of one that has not ended, until now.
function lasted(node, run) { return Math.max(0, (node.until === null ? run.end : node.until) - node.begin); }

function usageOf(node) { return (node.end && node.end.usage) || null; }

// Costs are added as whole nano-dollars: see agentflow/core/data/money.py.
function nanos(usd) { return Math.round((usd || 0) * 1e9); }

function costOf(node) {
  if (node.end && typeof node.end.cost_usd === "number") return node.end.cost_usd;
  let sum = 0, any = false;
  for (const child of node.children) { const cost = costOf(child); if (cost !== null) { sum += nanos(cost); any = true; } }
  return any ? sum / 1e9 : null;
}

// A branch that another one has beaten: it is cancelled and nothing is wrong with it.
function lost(node) { return node.state === "stopped" && node.kind === "branch" && node.start.form === "race"; }

// Mark what the end waited for: walking back, of the children the one that ended last; losers are not waited for.
function markCritical(run) {
  for (const node of run.nodes.values()) node.critical = false;
  const pending = run.roots.slice();
  while (pending.length) {
    const node = pending.pop();
    node.critical = true;
    let limit = node.until === null ? Infinity : node.until + 1e-6;
    const children = node.children.slice().sort((a, b) => endOf(b) - endOf(a));
    for (const child of children) {
      if (endOf(child) > limit || lost(child)) continue;
      pending.push(child);
      limit = child.begin + 1e-6;
    }
  }
}

function endOf(node) { return node.until === null ? Infinity : node.until; }

// The state of a form that ran many times: the worst, a form that still runs before one that has ended. Those that lost a race are well.
function stateOf(nodes) {
  const states = new Set();
  for (const node of nodes) states.add(lost(node) ? "lost" : node.state);
  if (states.has("lost") && !states.has("ok")) states.add("stopped");
  for (const state of ["failed", "running", "waiting", "stopped"]) if (states.has(state)) return state;
  return "ok";
}

// The children of a node: runs of branches of one form together, everything else by itself.
function groupsOf(node) {
  if (node.groups === null) node.groups = grouped(node);
  return node.groups;
}

function grouped(node) {
  // one attempt that went well says nothing that its call does not say
  if (node.kind === "model" && node.children.length === 1 && node.children[0].kind === "attempt" && node.children[0].state === "ok") return [];
  if (!node.children.some((child) => child.kind === "branch")) return node.children.length ? [[null, node.children]] : [];
  const groups = [], forms = new Map();
  for (const child of node.children) {
    if (child.kind !== "branch") { groups.push([null, [child]]); continue; }
    const key = child.path.slice(0, child.path.lastIndexOf("."));
    if (!forms.has(key)) { const group = []; forms.set(key, group); groups.push([child.start.form, group]); }
    forms.get(key).push(child);
  }
  return groups;
}

// What a node gave, as text: a result, an answer, or why it failed.
function gave(node) {
  const end = node.end || {};
  if (end.response) return (end.response.parts || []).map((part) => part.text || JSON.stringify(part)).join("\n");
  if (end.result) return String(end.result.content || "");
  if (end.paths) return JSON.stringify(end.paths, null, 2);
  return errorText(node) || node.streamed || "";
}

function errorOf(node) {
  const end = node.end;
  if (!end) return null;
  if (end.error) return end.error;
  const notes = end.result && end.result.notes;
  return notes && notes.error ? { code: notes.error.reason, message: notes.error.message || end.result.content || "" } : null;
}

function errorText(node) { const error = errorOf(node); return error ? `${error.code || ""} ${error.message || ""}`.trim() : ""; }
