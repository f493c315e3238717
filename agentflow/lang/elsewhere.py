"""Words of other languages that newcomers write, and what this one says instead. They serve hints only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from agentflow.lib.text.suggest import did_you_mean

_WORDS = {
    "print println printf display displayln echo puts": "(log-message value ...) writes to the log; the value of the last "
    "form is the program's",
    "def defn defun function": "write (define (name parameter ...) body ...)",
    "fn fun": "write (lambda (parameter ...) body ...)",
    "setq setf setv": "write (set! name value), or (define name value) for a new name",
    "var const val": "write (define name value)",
    "None null undefined NULL": "write nil",
    "True TRUE": "write true",
    "False FALSE": "write false",
    "return": "the value of a body is that of its last form",
    "await async": "nothing needs to be awaited; (parallel ...) and (pmap f list) run things at the same time",
    "for foreach doseq": "write (map f list), (for-each f list) or (do ...)",
    "elif elsif": "write (cond (test value) ... (else value))",
    "switch match": "write (case value ((key ...) result) ... (else result)), or (cond ...)",
    "throw": "write (raise value) or (error message)",
    "except rescue": "write (try body ... (catch (e) handler ...))",
    "assert": '(if (not test) (error "what is wrong")) says so',
    "import require load use include": "a program is one text; the host binds what else it needs",
    "str concat": '(string-append text ...) joins texts, (format "{}" value) makes one of any value',
    "len count size": "write (length list)",
    "hash-map make-hash hash object": 'write (dict "key" value ...) or {"key" value ...}',
    "array vector tuple": "write (list value ...)",
    "input read-line": "the host binds what a program is given: agentflow run FILE -b name=value",
}
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {word: hint for words, hint in _WORDS.items() for word in words.split()}
)
"""What to write instead, by the word of another language."""


def name_hint(name: str, names: Iterable[str]) -> str | None:
    """What an unbound name may have meant: a word of another language, or a misspelt one of ``known``."""
    return ELSEWHERE.get(name) or did_you_mean(name, names)
