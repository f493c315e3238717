// The report of an evaluation: its variants, the cases that changed with both values beside each other, the failures by cause.
"use strict";

function evaluation(data) {
  const [names, ...rows] = data.table.map((row) => row.map(visible));
  return [element("header", {}, element("div", { class: "title" }, element("h1", {}, visible(data.title)), element("code", { class: "id" }, visible(data.run_id))),
    element("p", { class: "soft" }, visible(data.headline)),
    data.notices.map(([title, text]) => element("div", { class: "banner waiting" }, element("b", {}, visible(title)), element("span", {}, visible(text))))),
  element("main", {}, section("variants", element("div", { class: "wide" }, table(names, rows))),
    data.notes.map(([title, items]) => section(visible(title), element("ul", {}, items.map((each) => element("li", {}, visible(each)))))),
    data.changes.map((part) => element("div", { class: "part changes" }, element("h3", {}, visible(part.title)), part.cases.map((each) => changedCase(part, each)))),
    data.failures.length ? section("failures by cause", table(["samples", "cause", "cases"], data.failures.map((row) => row.map(visible)))) : null,
    data.missing.length ? section("scores that are missing", table(["samples", "why"], data.missing.map((row) => row.map(visible)))) : null)];
}

// One case under two variants; what they did is drawn when it is opened.
function changedCase(part, each) {
  const draw = (event) => { const box = event.currentTarget; if (box.open && box.children.length === 1) box.append(bothSides(part, each)); };
  return element("details", { "data-case": each.case, ontoggle: draw },
    element("summary", {}, element("b", {}, visible(each.change)), visible(` ${each.case} `), element("small", {}, visible(each.steps.length ? `first apart: ${stepName(each.steps[0])}` : ""))));
}

function stepName(step) { return `${step.kind} ${step.name} at ${step.path}`; }

function bothSides(part, each) {
  const steps = each.steps.map((step) => [element("h4", {}, element("span", { class: `tag ${step.change}` }, CHANGES[step.change] || step.change), visible(` ${stepName(step)}`)), panes(step.base, step.here)]);
  return element("div", { class: "sides" }, element("div", { class: "panes" }, element("b", {}, visible(part.base)), element("b", {}, visible(part.here))), steps,
    element("h4", {}, "the value"), panes(each.base, each.here), each.expected === null ? null : [element("h4", {}, "expected"), element("pre", { class: "json" }, visible(each.expected))]);
}

// Two texts beside each other, with the words that only one of them has marked.
function panes(before, after) {
  if (before === null || after === null) return element("div", { class: "panes" }, [before, after].map((text) => element("pre", { class: "json" }, text === null ? "" : visible(text))));
  const sides = [["ins", before, after], ["del", before, after]].map(([other, a, b]) => {
    const box = difference(a, b);
    for (const each of box.querySelectorAll(other)) each.remove();
    return box;
  });
  return element("div", { class: "panes" }, sides);
}

unpack("data").then((data) => {
  globalThis.report = data;
  document.body.replaceChildren(...evaluation(data).flat(Infinity));
  addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
}, unreadable);
