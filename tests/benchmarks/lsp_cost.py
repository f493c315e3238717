"""What the language server costs an editor: processor time of a change in a file of 5,000 lines, and of the answers.

``python -m tests.benchmarks.lsp_cost`` prints the best of several; the target is 100 ms a change, mistakes included. A text is
surveyed in parts, between which the server answers: the longest of them counts where all of it takes longer.
The file is dense code, more than the default limit of nodes lets run: the limit is raised for it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

from lsprotocol import types

from agentflow.cli.check.language import ShippedNames
from agentflow.core.data.limits import Limits
from agentflow.lang.survey import Surveyor
from agentflow.lib.text.stack import collector_paused
from agentflow.lsp import completion, explain, highlighting, mistakes, navigation
from agentflow.lsp.document import Document
from agentflow.lsp.vocabulary import Vocabulary

UNIT = """\
(defatom review-% (params (path string) (most integer))
  (instructions "Review {{path}} with at most {{most}} remarks."))

(define (score-% items floor)
  (let ((kept (filter (lambda (item) (> (get-field item "score") floor)) items))
        (total 0))
    (for-each (lambda (item) (set! total (+ total (get-field item "score")))) kept)
    (if (null? kept)
        0
        (/ total (length kept)))))

(define (main-% paths)
  (let* ((reviews (pmap (lambda (path) (review-% (path path) (most 5))) paths 4))
         (values (map value-of reviews)))
    (cond ((null? values) nil)
          ((> (length values) 3) (score-% values 2))
          (else (try (score-% values 0)
                     (catch (e) (log-message (get-field e "message")) 0))))))

"""


def text_of(lines: int) -> str:
    """A program of about so many lines."""
    return "".join(UNIT.replace("%", str(number)) for number in range(lines // UNIT.count("\n")))


def best(work: Callable[[], object], rounds: int = 7) -> float:
    """Milliseconds of processor time, the best of ``rounds``."""
    taken: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken) * 1000


def longest_part(document: Document) -> float:
    """Milliseconds of processor time of the longest part of a survey, during which an editor gets no answer.

    The garbage collector's own time is left out.
    """

    async def look() -> float:
        looking = asyncio.create_task(document.surveyed())
        longest = 0.0
        while not looking.done():
            start = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - start)
        return longest * 1000

    gc.collect()
    with collector_paused():
        return asyncio.run(look())


def main() -> None:
    """Print the table."""
    text = text_of(5_000)
    names = ShippedNames(())
    vocabulary = Vocabulary(names)
    document = Document("a.sexp", text, Surveyor(names=names, limits=Limits(nodes=1_000_000)))
    print(f"{text.count(chr(10)):,} lines, {len(text):,} characters, ms of processor time")
    fresh = Document("a.sexp", text, Surveyor(names=names, limits=Limits(nodes=1_000_000)))
    print(f"{'opened: the longest part':<50}{longest_part(fresh):>8.1f}")
    print(f"{'opened: all of it for the first time':<50}{best(lambda: mistakes.diagnostics(document), 1):>8.1f}")
    middle = text.index("floor", len(text) // 2) + 1
    count = 0

    def change(insert: str, at: int) -> None:
        nonlocal count
        count += 1
        where = document.lines.range(at, at)
        document.change([types.TextDocumentContentChangePartial(range=where, text=insert.format(count))])
        mistakes.diagnostics(document)

    print(f"{'a key in the middle of a form':<50}{best(lambda: change('x', middle)):>8.1f}")
    print(f"{'a definition more at the beginning':<50}{best(lambda: change('(define (new-{} x) x)', 0)):>8.1f}")
    print(f"{'a definition that many forms are told of':<50}{best(lambda: change('(define kept {})', 0), 3):>8.1f}")
    where = document.lines.range(0, 0)
    document.change([types.TextDocumentContentChangePartial(range=where, text="(define floor 3)")])
    print(f"{'another such: the longest part':<50}{longest_part(document):>8.1f}")
    change("((", middle)
    print(f"{'a key while a bracket is missing':<50}{best(lambda: change('x', middle)):>8.1f}")
    for name, answer in {
        "hover": lambda: explain.hover(document, vocabulary, middle),
        "completion": lambda: completion.completions(document, vocabulary, middle),
        "references": lambda: navigation.references(document, middle),
        "outline": lambda: navigation.outline(document),
        "semantic tokens of all": lambda: highlighting.tokens(document),
        "semantic tokens of a screen": lambda: highlighting.tokens(document, (middle, middle + 2_000)),
    }.items():
        print(f"{name:<50}{best(answer, 3):>8.1f}")


if __name__ == "__main__":
    main()
