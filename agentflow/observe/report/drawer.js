// The drawer: everything that is known of one step, or of the difference of two runs.
"use strict";

const LAST_MESSAGES = 6, MAX_MESSAGES = 60;

class Drawer {
  constructor(view) {
    this.view = view; this.run = view.run;
    this.head = element("div", { class: "drawer-head" });
    this.body = element("div", { class: "drawer-body" });
    this.box = element("aside", { hidden: true, tabindex: "0", "aria-label": "details" }, this.head, this.body);
  }

  show(title, kind, ...children) {
    this.head.replaceChildren(...[kind ? element("span", { class: `tag ${kind}` }, kind) : null, element("h2", {}, visible(title)),
      element("button", { type: "button", class: "icon", title: "close (Esc)", "aria-label": "close", onclick: () => this.view.close() }, "×")].filter(Boolean));
    this.body.replaceChildren(...children.flat(Infinity).filter(Boolean));
    this.box.hidden = false; this.body.scrollTop = 0;
  }

  step(node) {
    const end = node.end || {}, start = node.start;
    const parts = [facts(factsOf(node, this.run)),
      element("div", { class: "bar" }, copyButton("copy as JSON", () => JSON.stringify([start, node.end], null, 2)),
        node.span && this.run.programs.has(node.span.source) ? element("button", { type: "button", onclick: () => this.view.program.reveal(node.span) }, "show in the program") : null)];
    const failure = errorOf(node);
    if (failure) parts.push(element("div", { class: "failure" }, element("b", {}, visible(failure.code || "error")), " ", visible(failure.message || ""), failure.hint ? element("p", {}, visible(`hint: ${failure.hint}`)) : null));
    if (node.kind === "run" || node.kind === "branch") parts.push(byTask(node));
    if (node.kind === "wait" && start.key) parts.push(question(node, this.run));
    if (node.kind === "model") parts.push(this.call(node));
    else if (node.kind === "tool") parts.push(section("arguments", json(start.arguments)));
    else if (node.kind === "context") parts.push(section("question", json(start.input)), section("files", json(end.paths)));
    else if (start.request) parts.push(section("request", json(filled(start.request))));
    if (end.result) parts.push(result(end.result));
    const attempts = node.children.filter((child) => child.kind === "attempt");
    if (attempts.length) parts.push(section("attempts", table(["", "outcome", "time", ""], attempts.map((each) => attemptRow(each, this.run)))));
    if (node.notes.length) parts.push(section("notes", element("ul", {}, node.notes.slice(0, 200).map((note) => element("li", {}, visible(`${note.type}: ${note.message || note.code || note.name || ""}`))))));
    this.show(node.label, node.kind === "model" && node.label === "model" ? "" : node.kind, ...parts);
  }

  // A model call: its messages, what is new in them, JSON, and what can be copied.
  call(node) {
    const request = node.start.request || {}, response = (node.end && node.end.response) || null, before = previousTurn(node);
    const body = element("div"), buttons = element("div", { class: "bar" });
    const answer = () => (response ? message("answer", response.parts) : node.streamed ? message("answer so far", [{ type: "text", text: node.streamed }]) : null);
    const tools = request.tools && request.tools.length ? element("p", { class: "soft" }, visible(`may call ${request.tools.map((tool) => tool.name || tool).join(", ")}`)) : null;
    const views = {
      messages: () => [request.system ? message("system", [{ type: "text", text: request.system }]) : null, tools, ...conversation(request.messages || []), answer()],
      JSON: () => [element("h3", {}, "request"), json(request), element("h3", {}, "response"), json(response)],
    };
    if (before) views["since the last turn"] = () => {
      const known = (before.start.request || {}).messages || [], now = request.messages || [];
      let same = 0;
      while (same < known.length && same < now.length && JSON.stringify(known[same]) === JSON.stringify(now[same])) same += 1;
      return [element("p", { class: "soft" }, `${plural(same, "message")} as before, ${now.length - same} new`), ...conversation(now.slice(same)), answer()];
    };
    const pick = (name) => {
      for (const button of buttons.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === name));
      body.replaceChildren(...views[name]().filter(Boolean));
    };
    buttons.append(...Object.keys(views).map((name) => element("button", { type: "button", "data-view": name, "aria-pressed": "false", onclick: () => pick(name) }, name)), element("span", { class: "space" }));
    const wire = this.view.wires[node.seq];
    if (wire) buttons.append(copyButton("copy as curl", () => curl(wire)));
    if (response) buttons.append(copyButton("copy as a test", () => asTest(request, response)));
    pick("messages");
    return section("conversation", buttons, body);
  }
}

function factsOf(node, run) {
  const end = node.end || {}, usage = usageOf(node), cost = costOf(node);
  const rows = [["state", end.outcome || "running"], ["time", `${seconds(lasted(node, run))}, from ${seconds(node.begin - run.begin) || "0"} on`], ["path", node.path]];
  if (node.span) rows.push(["place", `${node.span.source}:${node.span.line}:${node.span.column}`]);
  if (usage) {
    const cached = usage.input_tokens ? Math.round((100 * (usage.cache_read_tokens || 0)) / usage.input_tokens) : 0;
    rows.push(["tokens", `${count(usage.input_tokens)} in${cached ? `, ${cached} % of them cached` : ""}; ${count(usage.output_tokens)} out${usage.reasoning_tokens ? `, ${count(usage.reasoning_tokens)} of them thinking` : ""}`]);
  }
  if (cost !== null) rows.push(["cost", money(cost)]);
  if ((node.start.sources || []).length) rows.push(["was given", node.start.sources.join(", ")]);
  if (node.end && sourcesOf(node).length) rows.push(["comes from", sourcesOf(node).join(", ")]);
  if (end.stop_reason) rows.push(["stop reason", end.stop_reason]);
  if (end.request_id) rows.push(["request id", end.request_id]);
  return rows;
}

function facts(rows) { return element("dl", { class: "facts" }, rows.map(([name, value]) => [element("dt", {}, name), element("dd", {}, visible(value))])); }

function section(title, ...children) { return element("div", { class: "part" }, element("h3", {}, title), children); }

function table(names, rows) {
  return element("table", {}, element("thead", {}, element("tr", {}, names.map((name) => element("th", {}, name)))),
    element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map((cell) => element("td", {}, cell))))));
}

// What each task within a step took, the dearest first.
function byTask(node) {
  const tasks = new Map(), pending = [node];
  while (pending.length) {
    const at = pending.pop();
    pending.push(...at.children);
    if (at.kind !== "task") continue;
    const row = tasks.get(at.label) || { calls: 0, failed: 0, time: 0, tokens: 0, cost: 0 };
    const usage = usageOf(at) || {};
    row.calls += 1; row.failed += at.state === "failed"; row.time += at.until === null ? 0 : at.until - at.begin;
    row.tokens += (usage.input_tokens || 0) + (usage.output_tokens || 0); row.cost = (nanos(row.cost) + nanos(costOf(at))) / 1e9;
    tasks.set(at.label, row);
  }
  if (!tasks.size) return null;
  const rows = [...tasks].sort((a, b) => b[1].cost - a[1].cost || b[1].tokens - a[1].tokens);
  return section("by task", table(["task", "calls", "time", "tokens", "cost"], rows.slice(0, 100).map(([name, row]) =>
    [visible(name), `${count(row.calls)}${row.failed ? ` (${count(row.failed)} failed)` : ""}`, seconds(row.time), count(row.tokens), row.cost ? money(row.cost) : ""])));
}

function question(node, run) {
  const start = node.start, open = node.state === "waiting";
  return section(open ? "waits for an answer" : "asked", element("p", {}, visible(start.question || node.label)), start.schema ? json(start.schema) : null,
    open ? element("pre", { class: "json" }, visible(`agentflow runs send ${run.id} ${start.key} VALUE`)) : null);
}

function attemptRow(node, run) {
  const end = node.end || {};
  return [String(node.start.number), end.outcome || "running", seconds(lasted(node, run)),
    visible([end.status ? `HTTP ${end.status}` : "", errorText(node), end.retry_in_s ? `again after ${seconds(end.retry_in_s)}` : ""].filter(Boolean).join(", "))];
}

function copyButton(text, make) {
  return element("button", { type: "button", onclick: (event) => {
    const button = event.currentTarget, said = make();
    const offer = () => { // where nothing can be copied, the text is shown to be selected
      const area = element("pre", { class: "json", tabindex: "0" }, said);
      button.closest(".bar").after(area);
      getSelection().selectAllChildren(area);
    };
    if (navigator.clipboard && isSecureContext) navigator.clipboard.writeText(said).then(() => { button.textContent = "copied"; }, offer);
    else offer();
  } }, text);
}

// An object without the fields that hold nothing.
function filled(value) {
  const empty = (each) => each === null || each === "" || each === 0 || (typeof each === "object" && !Object.keys(each).length);
  return Object.fromEntries(Object.entries(value).filter(([, each]) => !empty(each)));
}

function json(value) { return element("pre", { class: "json" }, visible(value === undefined ? "" : JSON.stringify(value, null, 2))); }

// What a step gave: its text, and its data unless the text is that.
function result(given) {
  const text = String(given.content || ""), data = given.parsedContent;
  let same = data === null || data === undefined;
  try { same ||= JSON.stringify(JSON.parse(text)) === JSON.stringify(data); } catch { /* no JSON: a text of its own */ }
  const written = same && data !== null && data !== undefined;
  return section("result", written ? null : element("div", { class: "message" }, element("div", {}, markdown(text))), written || !same ? json(data) : null);
}

// The last messages, and those before them folded: of a long conversation a reader wants the end, and elements are few.
function conversation(messages) {
  const shown = (each) => message(each.role, each.parts), first = Math.max(0, messages.length - LAST_MESSAGES);
  if (!first) return messages.map(shown);
  const fold = element("details", { ontoggle: () => { if (fold.open && fold.children.length === 1) fold.append(...messages.slice(Math.max(0, first - MAX_MESSAGES), first).map(shown)); } },
    element("summary", {}, plural(first, "message"), " before", element("small", {}, first > MAX_MESSAGES ? `; the last ${MAX_MESSAGES} of them, all are in the JSON` : "")));
  return [fold, ...messages.slice(first).map(shown)];
}

function message(role, parts) {
  const box = element("div");
  if (parts && parts.length && parts.every((part) => part.type === "tool_result")) role = "tool";
  for (const part of parts || []) {
    if (part.type === "text") box.append(markdown(part.text || ""));
    else if (part.type === "tool_call") box.append(element("pre", { class: "called" }, element("b", {}, visible(part.name)), visible(` ${JSON.stringify(part.arguments, null, 2)}`)));
    else if (part.type === "tool_result") box.append(element("pre", {}, element("b", {}, visible(part.name)), visible(`: ${part.text}`)));
    else if (part.type === "thinking") box.append(element("em", {}, markdown(part.text || "")));
    else box.append(element("p", {}, visible(`[${part.type}]`)));
  }
  return element("div", { class: `message ${/^[a-z]+/.exec(role) || ""}` }, element("b", {}, visible(role)), box);
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
