// Show the run of a report, or two.
"use strict";

function folded(events) {
  const run = new Run();
  for (const event of events) run.apply(event);
  return run;
}

unpack("data").then((data) => {
  const runs = data.runs.map(folded);
  globalThis.report = new View(runs[0], runs[1] || null, data.wires, data.pairs);
}, unreadable);
