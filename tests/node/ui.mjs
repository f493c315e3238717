// Talks to a UI message stream as useChat does, with the AI SDK's own chat and transport.
// argv: JSON of a list of chats {url, headers, body, message, approve: bool|null, answers: [value], results: {tool: value | {error}}, then,
// leave_after, stop}; prints one JSON line a chat. ``results`` are those of the tools that the page carries out; ``then`` is a last message,
// ``stop`` the type of event at which the user stops the answer before.
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => this.messages.push(message);
  popMessage = () => this.messages.pop();
  replaceMessage = (index, message) => (this.messages[index] = message);
  snapshot = (value) => structuredClone(value);
}
class Chat extends AbstractChat {
  constructor(options) {
    super({ ...options, state: new State() });
  }
}

for (const each of JSON.parse(process.argv[2])) {
  const types = [];
  let left = each.leave_after ?? Infinity;
  const aborter = new AbortController();
  const transport = new DefaultChatTransport({
    api: each.url,
    headers: each.headers ?? {},
    body: each.body,
    fetch: async (url, init) => {
      const response = await fetch(url, { ...init, signal: aborter.signal });
      if (!response.ok || !response.body) return response;
      const decoder = new TextDecoder();
      const watch = new TransformStream({
        transform(chunk, controller) {
          for (const [, type] of decoder.decode(chunk, { stream: true }).matchAll(/^data: \{"type": ?"([a-z-]+)"/gm)) {
            types.push(type);
            if (types.length >= left) aborter.abort();
            if (type === each.stop && chat.messages.length < 3) setTimeout(() => chat.stop(), 20);
          }
          controller.enqueue(chunk);
        },
      });
      return new Response(response.body.pipeThrough(watch), { headers: response.headers, status: response.status });
    },
  });
  const called = [];
  const chat = new Chat({
    transport,
    onToolCall({ toolCall }) {
      if (toolCall.dynamic || !(toolCall.toolName in (each.results ?? {}))) return;
      called.push(toolCall);
      const { toolName: tool, toolCallId } = toolCall;
      const result = each.results[tool];
      if (result?.error) chat.addToolOutput({ tool, toolCallId, state: "output-error", errorText: result.error });
      else chat.addToolOutput({ tool, toolCallId, output: result });
    },
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(state) || lastAssistantMessageIsCompleteWithToolCalls(state),
  });
  await chat.sendMessage({ text: each.message });
  const answers = [...(each.answers ?? [])];
  for (let round = 0; round < 10; round++) {
    await new Promise((done) => setTimeout(done, 20)); // for what is sent automatically
    while (chat.status === "streaming" || chat.status === "submitted") await new Promise((done) => setTimeout(done, 5));
    const parts = chat.messages.at(-1).parts;
    const approval = parts.find((part) => part.state === "approval-requested");
    const question = parts.find((part) => part.toolName === "ask_human" && part.state === "input-available");
    if (approval && each.approve !== null) {
      chat.addToolApprovalResponse({ id: approval.approval.id, approved: each.approve });
    } else if (question && answers.length) {
      const output = answers.shift();
      if (output === null)
        chat.addToolOutput({ tool: "ask_human", toolCallId: question.toolCallId, state: "output-error", errorText: "no" });
      else chat.addToolOutput({ tool: "ask_human", toolCallId: question.toolCallId, output });
    } else break;
  }
  if (each.then) await chat.sendMessage({ text: each.then });
  console.log(JSON.stringify({ types, called, messages: chat.messages, error: chat.error ? String(chat.error.message) : null }));
}
