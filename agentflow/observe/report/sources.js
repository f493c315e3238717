// Where values came from, in runs of flows with a policy: each source has a colour, in the order in which they were first seen.
"use strict";

const SHADES = 8;

class Sources {
  constructor() { this.names = []; this.denials = []; }

  // Take what a step's end says of its value's sources.
  take(names) { for (const name of names || []) if (!this.names.includes(name)) this.names.push(name); }

  shade(name) { return `var(--source-${this.names.indexOf(name) % SHADES})`; }

  // Stripes of the sources' colours, one after the other.
  stripes(names) {
    const parts = names.map((name, at) => `${this.shade(name)} ${(100 * at) / names.length}% ${(100 * (at + 1)) / names.length}%`);
    return `linear-gradient(90deg, ${parts.join(", ")})`;
  }

  swatch(name) {
    const mark = element("i", { class: "span source" });
    mark.style.background = this.shade(name);
    return element("span", {}, mark, visible(name));
  }
}

// The sources of what a step gave; of one that goes on, those of what it was given.
function sourcesOf(node) { return (node.end || node.start).sources || []; }

// Those of what an expression gave, each time that it ran.
function sourcesOfAll(nodes) { return [...new Set(nodes.flatMap(sourcesOf))].sort(); }

// A call that the policy denied, or would have.
function isDenial(event) { return event.type === "policy_denied" || (event.type === "warning" && event.code === "provenance/denied"); }
