// The live page: the runs of a server, each shown as a report that is fed while it runs, and what runs ask, to be answered.
"use strict";

const LIST_MS = 2000, SHOW_MS = 150, RETRY_MS = 1000;

class Live {
  constructor() {
    this.key = ""; this.known = ""; this.id = null; this.view = null; this.after = ""; this.reading = null; this.due = 0;
    this.picker = element("select", { "aria-label": "run", onchange: () => this.follow(this.picker.value) });
    this.exports = element("select", { "aria-label": "export" });
    this.message = element("input", { placeholder: "Message", "aria-label": "message" });
    this.begin = element("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); this.start(); } },
      this.exports, this.message, element("button", {}, "run"));
    this.stop = element("button", { type: "button", hidden: true, onclick: () => this.ask(`runs/${encodeURIComponent(this.id)}/cancel`, {}) }, "cancel");
    this.state = element("span", { class: "soft", role: "status" });
    this.fleet = element("span", { class: "soft", "aria-label": "workers" });
    const field = element("input", { type: "password", autocomplete: "off", placeholder: "Key", "aria-label": "key" });
    this.door = element("form", { class: "bar", hidden: true, onsubmit: (event) => { event.preventDefault(); this.key = field.value.trim(); field.value = ""; this.look(); } },
      field, element("button", {}, "use this key"));
    this.text = element("input", { placeholder: "Say to the run", "aria-label": "say" });
    this.talk = element("form", { class: "bar", hidden: true, onsubmit: (event) => { event.preventDefault(); this.tell(); } },
      this.text, element("button", {}, "say"));
    this.asks = element("div", { class: "asks" });
    this.published = element("pre", { class: "published", "aria-label": "state", hidden: true });
    this.place = element("div", { class: "place" });
    document.body.className = "live";
    document.body.replaceChildren(element("nav", {}, element("b", {}, "agentflow"), this.picker, this.stop, this.state, this.fleet, element("span", { class: "space" }), this.talk, this.begin, this.door), this.asks, this.published, this.place);
    this.empty();
    this.look();
    setInterval(() => this.look(), LIST_MS);
  }

  empty() { this.place.replaceChildren(element("p", { class: "empty" }, "No run yet. Begin one here, by POST /runs, or with a chat client at /v1.")); }

  headers() { return this.key ? { authorization: `Bearer ${this.key}` } : {}; }

  // Send JSON and give what came back; whatever goes wrong is said.
  async ask(path, body) {
    try {
      const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json", ...this.headers() }, body: JSON.stringify(body) });
      const data = await answer.json();
      this.say(answer.ok ? "" : data.error.message);
      return answer.ok ? data : null;
    } catch (error) { this.say(`the server does not answer: ${error.message}`); return null; }
  }

  say(text) { this.state.textContent = visible(text); }

  // List the runs, and what may be begun.
  async look() {
    try {
      const answer = await fetch("runs", { headers: this.headers() });
      this.door.hidden = answer.status !== 401;
      this.begin.hidden = !answer.ok;
      if (!answer.ok) { this.say(answer.status === 401 ? "this server needs a key" : `the server answers ${answer.status}`); return; }
      const { runs, fleet } = await answer.json();
      const shown = JSON.stringify(runs.map((run) => [run.run_id, run.status]));
      if (!this.exports.options.length) await this.offers();
      if (shown === this.known) return;
      this.known = shown;
      if (fleet) this.load();
      this.picker.replaceChildren(...runs.map((run) => element("option", { value: run.run_id }, visible(`${run.export}  ${run.status}  ${run.run_id}`))));
      if (this.id !== null) this.picker.value = this.id;
      else if (runs.length) this.follow(runs[0].run_id);
    } catch (error) { this.say(`the server does not answer: ${error.message}`); }
  }

  // What workers have to do, where the key shows it.
  async load() {
    const answer = await fetch("fleet", { headers: this.headers() });
    if (!answer.ok) return;
    const counts = {};
    for (const each of (await answer.json()).queues)
      for (const status of ["queued", "running", "waiting"]) counts[status] = (counts[status] || 0) + each[status];
    this.fleet.textContent = Object.entries(counts).filter(([, count]) => count).map(([status, count]) => `${count} ${status}`).join(", ");
  }

  async offers() {
    const answer = await fetch("v1/models", { headers: this.headers() });
    const names = answer.ok ? (await answer.json()).data.map((each) => each.id) : [];
    this.exports.replaceChildren(...names.map((name) => element("option", { value: name }, visible(name))));
    this.begin.hidden = !names.length;
  }

  async start() {
    const name = this.exports.value;
    const run = await this.ask("runs", { export: name, message: this.message.value });
    if (run) { this.message.value = ""; await this.look(); this.follow(run.run_id); }
  }

  // Say something to the run that is shown: its model reads it before its next call.
  async tell() {
    const said = await this.ask(`runs/${encodeURIComponent(this.id)}/say`, { text: this.text.value });
    if (said) { this.text.value = ""; this.say("said; it is read before the next model call"); }
  }

  // The state that the run has published, as it is now.
  async publish(view) {
    this.changed = false;
    const answer = await fetch(`runs/${encodeURIComponent(this.id)}/state`, { headers: this.headers() });
    if (!answer.ok || view !== this.view) return;
    this.published.textContent = visible(JSON.stringify(await answer.json(), null, 1));
    this.published.hidden = this.published.textContent === "{}";
  }

  // Show a run from its first event on.
  follow(id) {
    this.published.hidden = true; this.changed = true;
    if (this.reading) this.reading.abort();
    if (this.view) this.view.leave();
    this.id = id; this.after = "";
    this.picker.value = id;
    this.view = globalThis.report = new View(new Run(), null, {}, [], this.place);
    this.reading = new AbortController();
    this.read(this.view, this.reading.signal);
  }

  // Read events until the run has ended; a connection that breaks is taken up after the last event.
  async read(view, signal) {
    while (!signal.aborted) {
      try {
        const answer = await fetch(`runs/${encodeURIComponent(this.id)}/events${this.after ? `?after=${this.after}` : ""}`, { headers: this.headers(), signal });
        if (!answer.ok) { this.say((await answer.json()).error.message); return; }
        await this.take(view, answer.body.pipeThrough(new TextDecoderStream()).getReader(), signal);
        this.show(view);
        this.look();
        return;
      } catch (error) {
        if (signal.aborted) return;
        this.say("the connection broke; trying again");
        await new Promise((wake) => setTimeout(wake, RETRY_MS));
      }
    }
  }

  async take(view, reader, signal) {
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (signal.aborted || done) return;
      const frames = (text + value).split("\n\n");
      text = frames.pop();
      for (const frame of frames) this.frame(view, frame);
      this.later(view);
    }
  }

  frame(view, frame) {
    let id = "", data = "";
    for (const line of frame.split("\n")) {
      if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (!data) return;
    const event = JSON.parse(data);
    if (event.type === "gap") this.say("the first events are not kept any more");
    else view.run.apply(event);
    if (event.type === "state_changed") this.changed = true;
    if (id) this.after = id;
  }

  // Draw now and then: drawing takes longer the more there is, so wait as long as it took some times over.
  later(view) {
    if (this.due) return;
    this.due = setTimeout(() => {
      const began = performance.now();
      this.due = 0;
      if (view === this.view) this.show(view);
      this.pause = Math.max(SHOW_MS, 4 * (performance.now() - began));
    }, this.pause || SHOW_MS);
  }

  show(view) {
    if (view !== this.view) return;
    const chosen = view.chosen, body = view.drawer.body, top = body.scrollTop;
    view.update();
    if (chosen && !view.drawer.box.hidden && (chosen.state === "running" || chosen !== this.drawn)) { view.drawer.step(chosen); body.scrollTop = top; }
    this.drawn = chosen && chosen.state !== "running" ? chosen : null;
    this.stop.hidden = this.talk.hidden = Boolean(view.run.finish && view.run.finish.outcome !== "suspended");
    if (this.changed) this.publish(view);
    this.questions(view.run);
  }

  // What the run asks, each once, with what answers it.
  questions(run) {
    const open = run.finish ? run.questions() : [...run.nodes.values()].filter((node) => node.kind === "wait" && node.start.key && node.state === "running");
    const keys = new Set(open.map((node) => node.start.key));
    for (const box of [...this.asks.children]) if (!keys.delete(box.dataset.key)) box.remove();
    for (const node of open) if (keys.has(node.start.key)) this.asks.append(this.question(node.start));
  }

  question(start) {
    const id = this.id, box = element("form", { class: "banner waiting", "data-key": start.key });
    const send = async (answer) => { if (await this.ask(`runs/${encodeURIComponent(id)}/answers/${encodeURIComponent(start.key)}`, { answer })) box.remove(); };
    const button = (text, answer) => element("button", { type: "button", onclick: () => send(answer) }, text);
    const choice = start.reason === "approval" || (start.schema && start.schema.type === "boolean");
    box.append(element("b", {}, start.signal ? "waits for" : start.reason === "approval" ? "approve?" : "asks"), element("pre", {}, visible(start.question)));
    if (choice) box.append(button("yes", true), button("no", false));
    else {
      const field = element("input", { "aria-label": "answer" });
      const text = !start.schema || start.schema.type === "string";
      box.addEventListener("submit", () => {
        let value = field.value;
        if (!text) { try { value = JSON.parse(value); } catch { /* the server says what it wants */ } }
        send(value);
      });
      box.append(field, element("button", {}, start.signal ? "send" : "answer"));
    }
    box.addEventListener("submit", (event) => event.preventDefault());
    return box;
  }
}

globalThis.live = new Live();
