// Unpack the data of a report and show it.
"use strict";

async function unpack(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(stream).text());
  // a string that begins with U+0001 stands for a text of the table
  const fill = (value) => {
    if (typeof value === "string") return value.charCodeAt(0) === 1 ? data.texts[Number(value.slice(1))] : value;
    if (Array.isArray(value)) { for (let at = 0; at < value.length; at += 1) value[at] = fill(value[at]); return value; }
    if (value && typeof value === "object") for (const key of Object.keys(value)) value[key] = fill(value[key]);
    return value;
  };
  fill(data.runs); fill(data.wires);
  return data;
}

function folded(events) {
  const run = new Run();
  for (const event of events) run.apply(event);
  return run;
}

unpack("data").then((data) => {
  const runs = data.runs.map(folded);
  globalThis.report = new View(runs[0], runs[1] || null, data.wires, data.pairs);
}, (error) => { document.body.textContent = `This report cannot be read: ${error.message}`; });
