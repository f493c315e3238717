"""A survey says of a text what ``check`` says, however much of it was worked out before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.diagnosis import Diagnostic, diagnose
from agentflow.lang.survey import Surveyor
from tests.support.fake_run import FakeFlow
from tests.support.manual import blocks

ROOT = Path(__file__).resolve().parents[2]
MANUAL = [block.text for page in sorted((ROOT / "tests/spec").glob("*.md")) for block in blocks(page)]
FORMS = [
    "(define (total a b) (+ a b))",
    "(define total 3)",
    "(set! total 4)",
    "(total 1)",
    "(total 1 2)",
    '(defatom review (params (path string)) (instructions "See {{path}}"))',
    '(defatom outer (params p) (instructions "{{review(p)}} {{reviw(p)}}"))',
    "(review (path 1))",
    "(review (pth 1))",
    "(defmacro define-two (a b) (list 'progn (list 'define a 1) (list 'define b 2)))",
    "(define-two one two)",
    "(list one twoo)",
    "(define answer (value-of (ask (q 1))))",
    "(answer 1)",
    "(map answer '(1))",
    "(if)",
    '(log-message "a text\n(with a parenthesis in front")',
    "#| (comment\n(define x |#",
    "'(data\n(total 1))",
    "(define (main path) (list (length path path) (total path (other (name 1)))))",
    "(let ((total 1)) (total (x 1)))",
]


def told(diagnostics: list[Diagnostic]) -> list[object]:
    return [(each.severity, each.error.to_dict(), each.error.render()) for each in diagnostics]


def compare(surveyor: Surveyor, text: str, limits: Limits | None = None) -> None:
    source = Source("x.sexp", text)
    whole = diagnose(source, names=surveyor.names, limits=limits)
    assert told(surveyor.survey(source).diagnostics) == told(whole), text


def surveyor(limits: Limits | None = None) -> Surveyor:
    flow = FakeFlow(tasks={"ask": lambda q: q}, tools={"act": lambda x: x})
    return Surveyor(names=flow.performer, limits=limits)


def test_the_manual() -> None:
    """Every program of the manual, and all of a page as one text."""
    one = surveyor()
    for text in MANUAL:
        compare(one, text)
    compare(one, "\n".join(text for text in MANUAL if "syntax" not in text)[:60_000])


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_edits(seed: int) -> None:
    """Forms that come, go, move and change what others mean: after each edit the survey equals a fresh look."""
    rng = random.Random(seed)
    one = surveyor()
    forms = rng.choices(FORMS, k=8)
    for _ in range(40):
        at = rng.randrange(len(forms))
        match rng.randrange(4):
            case 0:
                forms[at] = rng.choice(FORMS)
            case 1:
                forms.insert(at, rng.choice(FORMS))
            case 2 if len(forms) > 3:
                del forms[at]
            case _:
                cut = rng.randrange(len(forms[at]))
                forms[at] = forms[at][:cut] + rng.choice(["", "(", ")", " x ", '"', "\n(", ";"]) + forms[at][cut + 1 :]
        compare(one, "\n".join(forms))
        if one.survey(Source("x.sexp", "\n".join(forms))).symbols is None:
            forms[at % len(forms)] = rng.choice(FORMS)  # what cannot be read tells nothing of the rest


SEQUENCES = [
    ["(define f 1)\n(define (f x y) x)\n(f 1)", "(define (f x y) x)\n(f 1)"],
    ["(define f car)\n(f (act 1))", "(define (f x) x)\n(f (act 1))", "(define f car)\n(f (act 1))"],
    ["(define (f x) x)\n(define (f x y) x)\n(f 1)", "(define (f x y) x)\n(f 1)"],
    ["(car (f 1))\n(define (f x) x)\n(f (act 1))", "(define (f x) x)\n(f (act 1))", "(f (act 1))\n(define (f x) x)"],
    ["(define answer (ask (q 1)))\n(define same answer)\n(same)", "(define answer 1)\n(define same answer)\n(same)"],
    ["(define-two a b)", "(defmacro define-two (a b) `(define ,a 1))\n(define-two a b)", "(define-two a b)"],
    ["(list total)\n(define totals 1)", "(list total)\n(define total 1)", "(list total)"],
]


@pytest.mark.parametrize("texts", SEQUENCES)
def test_what_others_define_matters(texts: list[str]) -> None:
    """A form that stays as it is means something else when the others change."""
    one = surveyor()
    for text in texts:
        compare(one, text)


def test_too_large_is_refused_alike() -> None:
    """Nodes and characters count over the whole text; quoted data weighs less."""
    limits = Limits(nodes=100, source_bytes=2_000)
    one = surveyor(limits)
    for text in ("(+ 1 2)\n" * 24, "(+ 1 2)\n" * 26, "'(1 2 3 4 5 6)\n" * 30, "'(1 2 3 4)\n" * 90, "; x\n" * 600):
        compare(one, text, limits)


def test_more_mistakes_than_anybody_reads() -> None:
    """Past fifty, the analysis gives up as the check does."""
    compare(surveyor(), "(if)\n" * 60)


def test_a_change_costs_what_it_changes() -> None:
    """Only the forms that changed, or were told something else, are analysed again."""
    one = surveyor()
    text = "".join(f"(define (f-{i} x) (+ x {i}))\n" for i in range(50))
    first = one.survey(Source("x.sexp", text))
    second = one.survey(Source("x.sexp", text.replace("(+ x 7)", "(- x 7)")))
    assert first.symbols is not None and second.symbols is not None
    anew = [
        index
        for index, (a, b) in enumerate(zip(first.symbols.parts, second.symbols.parts, strict=True))
        if a[1] is not b[1]
    ]
    assert anew == [7]
    third = one.survey(Source("x.sexp", "(define x 1)\n" + text))
    assert third.symbols is not None and len(third.symbols.parts) == 51
    assert [part for _, part in third.symbols.parts[1:]] != []
