// The page over one folded run, or over two beside each other: the head, and what joins program, timeline and drawer.
"use strict";

class View {
  constructor(run, other = null, wires = {}, pairs = [], place = document.body) {
    this.left = new AbortController();
    const { signal } = this.left;
    this.run = run; this.other = other; this.wires = wires; this.pairs = pairs; this.chosen = null;
    this.program = new ProgramPane(this);
    this.timeline = new Timeline(this);
    this.drawer = new Drawer(this);
    this.head = element("header");
    this.main = element("main", {}, this.program.box, this.timeline.box, this.drawer.box);
    place.replaceChildren(this.head, this.main);
    document.addEventListener("keydown", (event) => this.key(event), { signal });
    addEventListener("beforeprint", () => this.print(true), { signal });
    addEventListener("afterprint", () => this.print(false), { signal });
    this.update();
  }

  // Another run is shown from now on.
  leave() { this.left.abort(); }

  // Show what the run holds now, after events were applied to it.
  update() {
    markCritical(this.run);
    document.title = `${this.run.name || this.run.id} - agentflow`;
    this.timeline.axis = new Axis(this.run);
    this.drawHead();
    this.program.draw();
    this.timeline.update();
  }

  drawHead() {
    const run = this.run, finish = run.finish, usage = (finish && finish.usage) || {};
    const outcome = finish ? finish.outcome : "running", state = STATES[outcome] || "running";
    const cached = usage.input_tokens ? Math.round((100 * (usage.cache_read_tokens || 0)) / usage.input_tokens) : null;
    const figure = (name, value, about = null, most = null) => (value === null || value === "" ? null : element("div", { title: about }, element("dt", {}, name),
      element("dd", {}, value, most ? element("small", { class: "most", title: "the most that the program may take, worked out before it ran" }, ` of at most ${most}`) : null)));
    const ended = run.endings().length;
    const unpriced = finish && typeof finish.cost_usd !== "number";
    const parts = [
      element("div", { class: "title" }, element("span", { class: `badge ${state}` }, SHOWN[outcome] || outcome), element("h1", {}, visible(run.name || "run")),
        element("code", { class: "id" }, visible(run.id)), Object.entries(run.labels).map(([name, value]) => element("span", { class: "tag" }, visible(`${name}=${value}`))),
        element("span", { class: "space" }),
        this.other ? element("button", { type: "button", id: "compare", "aria-pressed": "false", onclick: (event) => this.compare(event.currentTarget) }, "difference") : null,
        element("button", { type: "button", class: "icon", title: "light or dark", "aria-label": "light or dark", onclick: () => this.theme() }, "◐")),
      element("dl", { class: "figures" },
        figure("time", seconds(run.end - run.begin), [run.idle > 1 ? `and ${seconds(run.idle)} away` : "", this.timeline.axis.waited ? `of which ${seconds(this.timeline.axis.waited)} for people` : ""].filter(Boolean).join(", ") || null),
        figure("cost", !finish || unpriced ? "unknown" : money(finish.cost_usd), unpriced ? "the price of a model is not known" : null, run.most.usd && `$${run.most.usd}`),
        figure("tokens in", finish ? count(usage.input_tokens) : null, null, run.most.input_tokens), figure("cached", cached === null ? null : `${cached} %`),
        figure("tokens out", finish ? count(usage.output_tokens) : null, null, run.most.output_tokens),
        figure("model calls", count(run.kinds.model), null, run.most.model_calls), figure("tasks", count(run.kinds.task)),
        figure("tool calls", run.kinds.tool ? count(run.kinds.tool) : null, null, run.most.tool_calls),
        figure("side by side", count((finish && finish.max_concurrency) || run.widest), "the most that ran at once", run.most.width),
        figure("failed steps", ended ? count(ended) : null), figure("recovered errors", run.failures.length > ended ? count(run.failures.length - ended) : null, "errors that a model read, and answered: its task did not fail"), figure("warnings", run.warnings.length ? count(run.warnings.length) : null),
        figure("value comes from", finish && finish.sources && finish.sources.length ? visible(finish.sources.join(", ")) : null, "the sources that the value of the run depends on"),
        figure("steps left out", run.folded ? count(run.folded) : null, "steps that went well, counted instead of shown")),
      ...this.banners(state)];
    this.head.replaceChildren(...parts.filter(Boolean));
  }

  // What a reader should know first: what the run waits for, or the first failure that ended something; red if it ended the run.
  banners(state) {
    const run = this.run, [error] = run.endings();
    const open = run.questions().map((node) => element("div", { class: "banner waiting" }, element("b", {}, "waits"), element("span", {}, visible(node.start.question || node.label)),
      element("code", {}, visible(`agentflow runs send ${run.id} ${node.start.key} VALUE`)), element("button", { type: "button", onclick: () => this.choose(node, true) }, "show")));
    open.push(...this.denied(error));
    if (!error) return open;
    return [...open, element("div", { class: `banner first-error ${state === "failed" ? "failed" : ""}` },
      element("b", {}, state === "failed" ? "failed" : "first failure"), element("span", {}, visible(errorText(error).slice(0, 300) || error.label)),
      element("button", { type: "button", onclick: () => this.choose(error, true) }, "show"))];
  }

  // What a policy denied first, unless that is the failure which is shown anyway.
  denied(error) {
    const [first] = this.run.sources.denials, failure = error && errorOf(error);
    if (!first || (failure && failure.code === "provenance/denied")) return [];
    return [element("div", { class: "banner denied" }, element("b", {}, "policy"), element("span", {}, visible(String(first.event.message).slice(0, 300))),
      first.node ? element("button", { type: "button", onclick: () => this.choose(first.node, true) }, "show") : null)];
  }

  // Show a step; with `reveal` clear what hides it.
  choose(node, reveal) {
    if (reveal) { this.timeline.clear(); this.timeline.open(node); }
    this.chosen = node;
    this.details(node);
    this.timeline.refresh();
    this.timeline.move(this.timeline.rows.indexOf(node));
  }

  details(node) {
    this.main.classList.add("open");
    this.drawer.step(node);
    this.program.reveal(node.span);
    this.timeline.later();
  }

  close() {
    this.drawer.box.hidden = true;
    this.main.classList.remove("open");
    const button = document.getElementById("compare");
    if (button) button.setAttribute("aria-pressed", "false");
    this.timeline.redraw();
  }

  compare(button) {
    if (button.getAttribute("aria-pressed") === "true") { this.close(); return; }
    this.main.classList.add("open");
    this.drawer.show("Two runs", "", comparison(this.run, this.other, this.pairs));
    button.setAttribute("aria-pressed", "true");
    this.timeline.redraw();
  }

  key(event) {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); this.timeline.search.focus(); }
    if (event.key === "Escape") { if (typing) event.target.blur(); this.close(); this.timeline.list.focus({ preventScroll: true }); }
  }

  theme() {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  }

  // On paper there is nothing to scroll: as many rows as one may want to read.
  print(begins) {
    const timeline = this.timeline;
    timeline.list.style.height = begins ? `${Math.min(timeline.rows.length, MAX_PRINTED) * ROW}px` : "";
    if (begins) timeline.list.scrollTop = 0;
    timeline.redraw();
    this.program.print(begins);
  }
}

const MAX_PRINTED = 300;
const SHOWN = { ok: "ok", failed: "failed", error: "failed", cancelled: "cancelled", suspended: "waiting", running: "not ended" };
