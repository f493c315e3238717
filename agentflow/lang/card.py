"""The language card: instructions for models that write programs, in at most 3,000 tokens.

Generated from the tables of forms and primitives, with worked examples that a test runs.
"""

from __future__ import annotations

from agentflow.core.data.known_names import GUARDED
from agentflow.core.data.source import Surface
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms import FORMS
from agentflow.lang.reference import PRIMITIVE_TOPICS, Example

LEFT_OUT = frozenset(
    {"begin", "bind", "call-workflow", "catch", "defatom", "defmacro", "director-evaluator-loop", "eval-program",
     "finally", "recall", "remember", "solve", "unquote", "unquote-splicing"}
)  # fmt: skip
"""Forms that a model's program may not use, or that another form's usage already shows."""

_GRANTED = frozenset({*GUARDED, "sources"})
"""Primitives described to a model only with its grants, with the grant each needs."""

_RULES = """\
A program is one or more S-expressions; the value of the last one is the answer. `;` begins a comment.

- Values: integers, floats, "strings" (JSON escapes), true false, nil (the empty list), none, 'symbols, lists, dicts.
  A dict is written {"key" expr ...}. Quoted lists '(1 2) are data. false 0 "" () {} and none are false.
- Operands are evaluated left to right. Variables are lexical. Lists and dicts are never changed in place.
- Tasks and tools take NAMED arguments: (name (parameter expr) ...). Never positional ones.
- A task or tool call gives a result: (value-of r) is its data or text and raises the error of a failed one;
  (failed? r) asks. Only call tasks and tools you were told of.
- Primitives take positional arguments and can be passed as values: (map first pairs).
- Text is built with (format "... {} ..." value) or string-append (strings only); there is no string interpolation.
- Run independent calls at the same time with parallel or pmap. A branch cannot set! an outer variable: return values."""


EXAMPLES = (
    Example(
        "Call a tool and use what it gives",
        '(define page (value-of (fetch (path "notes.txt"))))\n(length (string-split page))',
        "4",
    ),
    Example(
        "Ask a task about each of several things, at most 4 at a time, and combine",
        '(define topics \'("alpha" "beta"))\n'
        '(define answers (pmap (lambda (topic) (value-of (ask (question (format "What is {}?" topic))))) topics 4))\n'
        '(string-join answers "; ")',
        '"re: What is alpha?; re: What is beta?"',
    ),
    Example(
        "Go on when a call fails",
        '(let ((r (fetch (path "missing"))))\n  (if (failed? r) "nothing there" (value-of r)))',
        '"nothing there"',
    ),
    Example(
        "Repeat until good enough, at most three times",
        '(let again ((n 1) (draft ""))\n'
        "  (if (or (> (length draft) 12) (> n 3))\n"
        "      (list n draft)\n"
        '      (again (+ n 1) (string-append draft "word "))))',
        '(4 "word word word ")',
    ),
    Example(
        "Count words into a dict",
        "(reduce (lambda (counts word) (put counts word (+ 1 (get counts word 0))))\n"
        '        {} (string-split "a b a"))',
        '{"a" 2 "b" 1}',
    ),
    Example(
        "Catch an error and look at it",
        "(try (parse-json \"not json\")\n  (catch (e) (list 'failed (get-field e 'code))))",
        '(failed "json/invalid")',
    ),
)
"""A test runs them with two callables: ``fetch`` reads an invented file, ``ask`` is a task that echoes its question."""


def language_card(surface: Surface = "sexp") -> str:
    """The card as Markdown, for a system prompt: rules, forms, primitives, examples; under 3,000 tokens, that of Python under 900."""
    if surface == "python":
        from agentflow.lang.python.reference import python_card  # Most processes never see such a text.

        return python_card()
    forms = "\n".join(f"- `{form.usage}`" for form in FORMS.values() if form.name not in LEFT_OUT)
    topics: list[str] = []
    for topic, heading in PRIMITIVE_TOPICS.items():
        usages = [
            p.usage
            for p in PRIMITIVES.values()
            if p.topic == topic and p.name == (p.canonical or p.name) and p.name not in _GRANTED
        ]
        if usages:
            topics.append(f"- {heading}: `{'` `'.join(usages)}`")
    examples = "\n\n".join(
        f"{example.about}:\n```lisp\n{example.program}\n; => {example.value}\n```" for example in EXAMPLES
    )
    primitives = "\n".join(topics)
    return (
        f"# The workflow language\n\n{_RULES}\n\n## Forms\n\n{forms}\n\n"
        f"## Primitives\n\n{primitives}\n\n## Examples\n\n{examples}\n"
    )
