// Talks to an AG-UI endpoint with the protocol's own client, which checks the order of events.
// argv: JSON of a list of threads {url, headers, tools, state, context, turns, leave_after}; prints one JSON line a thread. A turn is {message},
// {answers: [payload]} for interrupts, or {results: {tool: content | {error}}} for the open calls of the front end's own tools, each with
// {state}, which the user of the page changes before.
import { HttpAgent } from "@ag-ui/client";

console.warn = () => {};
console.error = () => {};
for (const thread of JSON.parse(process.argv[2])) {
  const agent = new HttpAgent({ url: thread.url, headers: thread.headers ?? {}, initialState: thread.state ?? {} });
  const turns = [];
  let interrupts = [];
  for (const turn of thread.turns) {
    const events = [];
    let error = null;
    const parameters = { tools: thread.tools ?? [], context: thread.context ?? [] };
    if (turn.state) agent.setState({ ...agent.state, ...turn.state }); // what its user changes meanwhile
    if (turn.answers) {
      parameters.resume = interrupts.map((each, at) =>
        turn.answers[at] === null
          ? { interruptId: each.id, status: "cancelled" }
          : { interruptId: each.id, status: "resolved", payload: turn.answers[at] },
      );
    }
    if (turn.results) {
      const answered = new Set(agent.messages.map((each) => each.toolCallId));
      for (const message of [...agent.messages])
        for (const call of message.toolCalls ?? []) {
          if (answered.has(call.id) || !(call.function.name in turn.results)) continue;
          const result = turn.results[call.function.name];
          const content = typeof result === "string" ? { content: result } : { content: result.error, ...result };
          const after = agent.messages.indexOf(message) + 1; // where CopilotKit puts it
          agent.messages.splice(after, 0, { id: `result-${call.id}`, role: "tool", toolCallId: call.id, ...content });
        }
    }
    if (turn.message) {
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
