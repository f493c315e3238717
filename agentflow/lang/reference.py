"""Generates the reference page from the tables that the compiler itself uses.

``python -m agentflow.lang.reference > docs/reference.md`` writes it; a test compares the page with the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from agentflow.core.data.frozen import frozen
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.forms import FORMS
from agentflow.lib.text.suggest import did_you_mean


@frozen
class Example:
    """A worked example: its purpose, the program, and its value as program text in S-expressions."""

    about: str
    program: str
    value: str


FORM_GROUPS = {
    "binding": "Binding",
    "control": "Control",
    "loops": "Loops",
    "data": "Data as written",
    "failure": "Failure",
    "concurrency": "Concurrency",
    "tasks": "Tasks",
    "notes": "Notes",
    "programs": "Programs as data",
}
PRIMITIVE_TOPICS = {
    "numbers": "Numbers",
    "strings": "Strings",
    "lists": "Lists",
    "procedures": "Procedures over lists",
    "records": "Dicts and fields",
    "data": "JSON",
    "logic": "Equality and kinds",
    "results": "Results",
    "world": "Time, chance and people",
}


@frozen
class Entry:
    """One documented name: ``kind`` is form, primitive or effect; ``group`` is its heading."""

    name: str
    usage: str
    doc: str
    kind: str
    group: str


_EFFECTS = (
    Entry(
        "get_context",
        "(get_context (query text) (history text) (inputs dict) (max_results n) ...)",
        "The paths of the files that fit the query, best first, as a list of strings. The arguments are named and are "
        "the fields of a context request. An error from memory is raised.",
        "effect",
        "Context",
    ),
    Entry(
        "get-context-items",
        "(get-context-items (query text) ...)",
        "Like get_context, with all details of each match: a list of items with path, content and score.",
        "effect",
        "Context",
    ),
)


def entries() -> list[Entry]:
    """All documented names, sorted."""
    listed = [Entry(f.name, f.usage, f.doc, "form", FORM_GROUPS.get(f.group, f.group)) for f in FORMS.values()]
    listed += [
        Entry(p.name, p.usage, p.doc, "primitive", PRIMITIVE_TOPICS.get(p.topic, p.topic)) for p in PRIMITIVES.values()
    ]
    return sorted([*listed, *_EFFECTS], key=lambda entry: entry.name)


def describe(name: str) -> str:
    """Usage and documentation of a form or primitive as plain text, or a sentence saying that there is none."""
    for entry in entries():
        if entry.name == name:
            what = "special form" if entry.kind == "form" else "primitive"
            return f"{entry.usage}\n  {what}: {entry.doc.replace(chr(10), chr(10) + '  ')}"
    near = did_you_mean(name, [entry.name for entry in entries()])
    return f"there is no form or primitive called '{name}'" + (f"; {near}" if near else "")


def reference_page() -> str:
    """The text of ``docs/reference.md``."""
    documented = entries()
    parts = [
        "# Language reference",
        "Generated from the compiler's own tables by `python -m agentflow.lang.reference > docs/reference.md`. "
        "The manual, with examples that are run as tests, is in [tests/spec](../tests/spec/README.md).",
        "## Special forms",
    ]
    for heading in FORM_GROUPS.values():
        parts += _section(heading, [e for e in documented if e.kind == "form" and e.group == heading])
    parts.append("## Primitives")
    parts.append("Each is a procedure: its operands are evaluated from left to right, and its name is a value.")
    topics = _by_topic(PRIMITIVES.values())
    for topic, heading in PRIMITIVE_TOPICS.items():
        listed = [_aliased(each) for each in topics.get(topic, [])]
        parts += _section(heading, listed)
    parts += _section("Context", list(_EFFECTS))
    return "\n\n".join(parts) + "\n"


def _by_topic(primitives: Iterable[Primitive]) -> dict[str, list[Primitive]]:
    topics: dict[str, list[Primitive]] = {}
    for each in primitives:
        if each.name == (each.canonical or each.name):
            topics.setdefault(each.topic, []).append(each)
    return topics


def _aliased(primitive: Primitive) -> Entry:
    others = [p.name for p in PRIMITIVES.values() if p.canonical == primitive.name and p.name != primitive.name]
    doc = primitive.doc + (f"\n\nAlso called {', '.join(f'`{name}`' for name in others)}." if others else "")
    return Entry(primitive.name, primitive.usage, doc, "primitive", primitive.topic)


def _section(heading: str, listed: list[Entry]) -> list[str]:
    parts = [f"### {heading}"] if listed else []
    for entry in listed:
        doc = entry.doc.replace("``", "`")
        parts.append(f"#### `{entry.name}`\n\n```lisp\n{entry.usage}\n```\n\n{doc}")
    return parts


if __name__ == "__main__":
    sys.stdout.write(reference_page())
