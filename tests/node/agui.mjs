// Talks to an AG-UI endpoint with the protocol's own client, which checks the order of events.
// argv: JSON of a list of threads {url, headers, turns: [{message} | {answers: [payload]}], leave_after}; prints one JSON line a thread.
import { HttpAgent } from "@ag-ui/client";

console.warn = () => {};
console.error = () => {};
for (const thread of JSON.parse(process.argv[2])) {
  const agent = new HttpAgent({ url: thread.url, headers: thread.headers ?? {} });
  const turns = [];
  let interrupts = [];
  for (const turn of thread.turns) {
    const events = [];
    let error = null;
    const parameters = {};
    if (turn.answers) {
      parameters.resume = interrupts.map((each, at) =>
        turn.answers[at] === null
          ? { interruptId: each.id, status: "cancelled" }
          : { interruptId: each.id, status: "resolved", payload: turn.answers[at] },
      );
    } else {
      agent.addMessage({ id: `user-${turns.length}`, role: "user", content: turn.message });
    }
    try {
      await agent.runAgent(parameters, {
        onEvent({ event }) {
          events.push(event);
          if (events.length === thread.leave_after) agent.abortRun();
        },
        onRunFailed({ error: failure }) {
          error = String(failure.message ?? failure);
        },
      });
    } catch (failure) {
      error = String(failure.message ?? failure);
    }
    interrupts = events.find((each) => each.outcome?.type === "interrupt")?.outcome.interrupts ?? [];
    turns.push({ events, error });
  }
  console.log(JSON.stringify({ turns, messages: agent.messages, state: agent.state }));
}
