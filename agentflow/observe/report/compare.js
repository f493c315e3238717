// Two runs beside each other: the steps of both as they were joined when the report was written.
"use strict";

const CHANGES = { input: "asked otherwise", output: "answered otherwise", first: "only in the earlier", second: "only in this one", same: "the same" };

// `pairs` are [change, seq in the earlier run or null, seq in this one or null].
function comparison(run, other, pairs) {
  const rows = pairs.map(([change, before, after]) => ({ change, before: other.nodes.get(before), after: run.nodes.get(after) })).filter((row) => row.before || row.after);
  const shown = rows.filter((row) => row.change !== "same");
  const tally = Object.keys(CHANGES).map((change) => [CHANGES[change], rows.filter((row) => row.change === change).length]).filter(([, number]) => number);
  return [element("p", { class: "soft" }, visible(`earlier: ${other.name} ${other.id}`), element("br"), visible(`this one: ${run.name} ${run.id}`)),
    table(["", "earlier", "this one"], totals(other, run)),
    section("steps", facts(tally.map(([name, number]) => [name, count(number)]))),
    shown.slice(0, 400).map(changed),
    shown.length > 400 ? element("p", { class: "soft" }, `and ${count(shown.length - 400)} more`) : null,
    shown.length ? null : element("p", { class: "empty" }, "Both did the same.")];
}

function totals(before, after) {
  const row = (name, of) => [name, of(before), of(after)];
  const usage = (run) => (run.finish && run.finish.usage) || {};
  return [row("outcome", (run) => (run.finish ? run.finish.outcome : "running")), row("time", (run) => seconds(run.end - run.begin)),
    row("tokens", (run) => `${count(usage(run).input_tokens)} in, ${count(usage(run).output_tokens)} out`), row("cost", (run) => money(run.finish && run.finish.cost_usd))];
}

function changed(row) {
  const node = row.after || row.before;
  return element("details", { "data-change": row.change, ontoggle: (event) => { const box = event.currentTarget; if (box.open && box.children.length === 1) box.append(rowDifference(row)); } },
    element("summary", {}, element("span", { class: `tag ${row.change}` }, CHANGES[row.change]), visible(` ${node.label} `), element("small", {}, visible(`${node.kind} at ${node.path}${apart(row)}`))));
}

// What a step took in both runs.
function apart({ before, after }) {
  if (!before || !after || before.until === null || after.until === null) return "";
  return `, ${seconds(before.until - before.begin)} → ${seconds(after.until - after.begin)}`;
}

function rowDifference({ before, after }) {
  if (!before || !after) { const node = before || after; return element("div", {}, section("asked", json(asked(node))), section("gave", json(gave(node)))); }
  const box = element("div"), usage = (node) => usageOf(node) || {};
  if (asked(before) !== asked(after)) box.append(section("input", difference(asked(before), asked(after))));
  if (gave(before) !== gave(after)) box.append(section("output", difference(gave(before), gave(after))));
  box.append(table(["", "earlier", "this one"], [["time", ...[before, after].map((node) => seconds(node.until === null ? null : node.until - node.begin))],
    ["tokens", ...[before, after].map((node) => count((usage(node).input_tokens || 0) + (usage(node).output_tokens || 0)))], ["cost", ...[before, after].map((node) => money(costOf(node)))]]));
  return box;
}

function asked(node) {
  const request = node.start.request;
  if (node.kind === "model" && request) return [request.system || "", ...(request.messages || []).map((each) => (each.parts || []).map((part) => part.text || JSON.stringify(part)).join("\n"))].join("\n\n");
  return JSON.stringify(node.start.arguments ?? request ?? node.start.input ?? null, null, 2);
}
