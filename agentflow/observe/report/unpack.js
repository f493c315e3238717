// Unpack the data of a page.
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
  for (const key of Object.keys(data)) if (key !== "texts") data[key] = fill(data[key]);
  return data;
}

function unreadable(error) { document.body.textContent = `This report cannot be read: ${error.message}`; }
