"""What the language server answers for workflow texts in Python, as functions of a text and a cursor."""

from __future__ import annotations

import pytest
from lsprotocol import types

from agentflow.cli.check.language import ShippedNames
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.lang.survey import Surveyor
from agentflow.lsp import completion, explain, highlighting, mistakes, navigation
from agentflow.lsp.document import Document, Lines
from agentflow.lsp.open_texts import formatted
from agentflow.lsp.vocabulary import PythonVocabulary

NAMES = ShippedNames(())
VOCABULARY = PythonVocabulary(NAMES, {name: entry.description for name, entry in SCHEMAS.items()})
URI = "file:///a.py"
HEAD = "from agentflow.workflow import task, pmap\n"
TASK = HEAD + '@task\ndef review(path: str, most: int) -> str:\n    """See {{path}}, {{most}}"""\n'


def document(text: str) -> Document:
    return Document("a.py", text, Surveyor(names=NAMES))


def at_mark(text: str, head: str = HEAD) -> tuple[Document, int]:
    """The document of a text without its one mark ``^``, and the offset of that."""
    text = text if text.startswith(HEAD) else head + text
    offset = text.index("^")
    return document(text.replace("^", "")), offset


def apply(text: str, edits: list[types.TextEdit]) -> str:
    lines = Lines(text)
    for edit in sorted(edits, key=lambda each: lines.offset(each.range.start), reverse=True):
        start, end = lines.offset(edit.range.start), lines.offset(edit.range.end)
        text = text[:start] + edit.new_text + text[end:]
    return text


def labels(text: str) -> list[str]:
    doc, offset = at_mark(text)
    return [each.label for each in completion.completions(doc, VOCABULARY, offset)]


# -- which files, and their mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_program"),
    [
        ("import os\nos.system('ls')\n", False),
        ("from flytekit import workflow\n@workflow\ndef main():\n    with x: pass\n", False),
        ("def f():\n    with open('x') as g:\n        pass\n", False),
        (HEAD + "with x:\n    pass\n", True),
        ("import json\n@workflow\ndef main():\n    with x: pass\n", True),
        ('### agentflow workflow 1\n### {"name": "a"}\nwith x:\n    pass\n', True),
    ],
)
def test_files_of_python_that_are_no_workflow_texts_are_left_alone(text: str, is_program: bool) -> None:
    """A file is one by its header, an import of ``agentflow.workflow`` or ``@workflow``; of others nothing is said at all."""
    doc = document(text)
    assert bool(mistakes.diagnostics(doc)) is is_program
    assert bool(completion.completions(doc, VOCABULARY, len(text))) is is_program
    assert explain.signature(document(f"{text}len("), VOCABULARY, len(text) + 4) is None or is_program
    assert is_program or not navigation.outline(doc)


def test_several_mistakes_with_hints_in_python() -> None:
    """What ``check`` says, at its places, all of it; the prompt's wrong slot too."""
    text = TASK.replace("{{path}}", "{{pth}}") + "with x:\n    pass\nlenght([1])\n"
    found = {each.code: each for each in mistakes.diagnostics(document(text))}
    assert {"syntax/not-here", "defatom/instructions"} <= found.keys()
    assert found["defatom/instructions"].range.start == types.Position(3, 11)
    assert "tools open and close files" in found["syntax/not-here"].message


def test_a_hint_that_says_what_to_write_is_a_fix() -> None:
    """Applied, the mistake is gone."""
    text = TASK + "review(pth='a', most=1)\n"
    doc = document(text)
    (action,) = mistakes.fixes(doc, URI, (0, len(text)))
    assert action.edit is not None and action.edit.changes is not None
    assert apply(text, list(action.edit.changes[URI])) == TASK + "review(path='a', most=1)\n"


# -- explanations ---------------------------------------------------------------------------------------------------

HOVERS = [
    ("le^n([1])", "len(obj)"),
    ("pm^ap(len, [])", "pmap(f, xs, limit=8)"),
    ("json.lo^ads('1')", "The value of a JSON text."),
    ("def f(x, y):\n    return x\n^f(1, 2)", "f(x, y)"),
    ("# Adds up.\ndef su^m_of(xs):\n    return xs", "Adds up."),
    (TASK + "re^view(path='a', most=1)", "review(path: str, most: int)"),
    (TASK + "review(pa^th='a', most=1)", "argument of review"),
    (TASK.replace("{{path", "{{p^ath"), "parameter of review"),
    ("system.re^ad_files(file_paths=[])", "Read text files."),
    ("system.read_files(mis^sing='raise')", "argument of system.read_files"),
    ("class Review:\n    worst: str\nRe^view(worst='x')", "Review(worst)"),
    ("f = [each for each in [1] if ea^ch]", "variable"),
]


@pytest.mark.parametrize(("text", "part"), HOVERS)
def test_hover(text: str, part: str) -> None:
    """A name explains itself as Python writes it."""
    doc, offset = at_mark(text)
    hover = explain.hover(doc, VOCABULARY, offset)
    assert hover is not None and isinstance(hover.contents, types.MarkupContent)
    assert part in hover.contents.value and "```lisp" not in hover.contents.value


SIGNATURES = [
    ("pmap(f, ^", "pmap(f, xs, limit=8)", 1),
    ("def f(x, y):\n    return x\nf(1, ^", "f(x, y)", 1),
    ("def f(x, y):\n    return x\nf(y=^", "f(x, y)", 1),
    (TASK + "review(most=^", "review(path: str, most: int)", 1),
    (TASK + "review(path=len(^", "len(obj)", 0),
    (TASK + "review('a', ^", "review(path: str, most: int)", 1),
]


@pytest.mark.parametrize(("text", "label", "active"), SIGNATURES)
def test_signature_help(text: str, label: str, active: int) -> None:
    """The innermost call says what it takes and where the cursor is in it, while the text cannot be read too."""
    doc, offset = at_mark(text)
    told = explain.signature(doc, VOCABULARY, offset)
    assert told is not None and told.signatures[0].label.startswith(label)
    assert told.active_parameter == active


# -- completion -----------------------------------------------------------------------------------------------------


def test_completion_begins_with_what_is_near() -> None:
    """Locals come before names of the file, those before tools and the language."""
    found = labels("total = 1\ndef f(inner):\n    return inn^")
    assert found[0] == "inner"
    assert found.index("total") < found.index("system.read_files") < found.index("len")
    assert {"pmap", "True", "isinstance"} <= set(found)


def test_members_and_parameters() -> None:
    """After a dot stand the tools of a group, the functions of ``json``, else methods; in a call, its parameters."""
    assert "read_files" in labels("system.re^") and "loads" in labels("json.^")
    assert "append" in labels("xs = []\nxs.a^") and "len" not in labels("xs = []\nxs.a^")
    assert labels(TASK + "review(path='a', m^)")[0] == "most="
    assert "file_paths=" in labels("system.read_files(^)")


def test_slots_of_prompts() -> None:
    """Inside ``{{...}}`` of a task's prompt stand its parameters; elsewhere in a text or comment, nothing."""
    found = labels(TASK + '@task\ndef other(one: str, two):\n    """About {{o^')
    assert found[:2] == ["one", "two"] and "review" in found and "len" not in found
    assert labels("x = 'o^'") == [] and labels("# a comm^ent") == []


# -- names ----------------------------------------------------------------------------------------------------------


def test_definition_and_references() -> None:
    """From a use to its binding, and to all uses."""
    doc, offset = at_mark("def f(x):\n    return x + 1\n^f(f(2))")
    (where,) = navigation.definitions(doc, offset)
    assert where.start == types.Position(1, 4)
    assert len(navigation.references(doc, offset)) == 3
    assert len(navigation.references(doc, offset, declaration=False)) == 2


RENAMES = [
    ("def f(^x):\n    return x + (lambda x: x)(x)", "y", "def f(y):\n    return y + (lambda x: x)(y)"),
    ("to^tal = 1\nf = f'{total} total'\ntotal += 1", "sum_of", "sum_of = 1\nf = f'{sum_of} total'\nsum_of += 1"),
    (
        "def f(a, b=1):\n    return a\nf(1, ^b=2)",
        "c",
        "def f(a, c=1):\n    return a\nf(1, c=2)",
    ),
    (TASK + "re^view(path='a', most=2)", "judge", TASK.replace("review", "judge") + "judge(path='a', most=2)"),
    (TASK + "review(pa^th='a', most=2)", "file", TASK.replace("path", "file") + "review(file='a', most=2)"),
    (
        "def f():\n    n = 0\n    def g():\n        nonlocal ^n\n        n += 1\n    return g",
        "count",
        "def f():\n    count = 0\n    def g():\n        nonlocal count\n        count += 1\n    return g",
    ),
    (
        "try:\n    1\nexcept ValueError as ^e:\n    e.code",
        "failed",
        "try:\n    1\nexcept ValueError as failed:\n    failed.code",
    ),
    ("class Review:\n    wo^rst: str\nReview(worst='x')", "best", "class Review:\n    best: str\nReview(best='x')"),
    ("[a for ^a in [1]]\na = 2", "b", "[b for b in [1]]\na = 2"),
]


@pytest.mark.parametrize(("text", "new", "renamed"), RENAMES)
def test_rename(text: str, new: str, renamed: str) -> None:
    """The same thing everywhere, prompts, f-strings and arguments included, and nothing else of that name."""
    doc, offset = at_mark(text)
    expected = renamed if renamed.startswith(HEAD) else HEAD + renamed
    assert apply(doc.text, navigation.rename(doc, offset, new)) == expected
    assert not document(expected).survey.diagnostics


REFUSED = [
    ("x^ = 1", "y z", "not a name"),
    ("x^ = 1", "for", "not a name"),
    ("x^ = 1\ny = 2", "y", "means something already"),
    ("le^n([])", "size", "does not define"),
    ("f = g\nf(b^=1)\ndef g(b): return b", "c", "cannot be determined|there is no name"),
    ("def g(^b):\n    return b\nf = g\nf(b=1)", "c", "cannot be determined"),
    ("def f(:\n    x^ = 1", "y", "cannot be read"),
]


@pytest.mark.parametrize(("text", "new", "why"), REFUSED)
def test_names_that_cannot_be_renamed(text: str, new: str, why: str) -> None:
    """A refusal says why."""
    doc, offset = at_mark(text)
    with pytest.raises(navigation.CannotRename, match=why):
        navigation.rename(doc, offset, new)


def test_outline_tokens_and_formatting() -> None:
    """The outline lists tasks, records and functions with their parameters; tokens say what names are; formatting is left to ruff."""
    text = TASK + "class Review:\n    worst: str\ndef f(x):\n    return review(path=x, most=1)\ntotal = f('a')\n"
    doc = document(text)
    outline = {each.name: each for each in navigation.outline(doc)}
    assert list(outline) == ["review", "Review", "f", "total"]
    assert [each.name for each in outline["review"].children or []] == ["path", "most"]
    assert outline["review"].kind == types.SymbolKind.Event
    assert len(highlighting.tokens(doc)) % 5 == 0 and highlighting.tokens(doc)
    assert formatted(document(HEAD + "x   =  1\n")) == []


def test_names_of_the_last_text_that_could_be_read_serve_on() -> None:
    """While a bracket is missing, completion and definitions work."""
    doc = document(HEAD + "total = 1\nprint(total)\n")
    assert not doc.survey.diagnostics
    doc.change([types.TextDocumentContentChangeWholeDocument(HEAD + "total = 1\nprint(total)\nprint((tot\n")], 2)
    assert doc.survey.diagnostics[0].error.code == "syntax/python"
    assert next(each.label for each in completion.completions(doc, VOCABULARY, len(doc.text) - 1)) == "total"


# -- as a user walks it ---------------------------------------------------------------------------------------------

CLASS = HEAD + 'class Review:\n    worst: str\n    grade: str = "low"\n'


def told(text: str, head: str = HEAD) -> str:
    """What a hover at the mark says; nothing where there is none."""
    doc, offset = at_mark(text, head)
    answer = explain.hover(doc, VOCABULARY, offset)
    return "" if answer is None else str(getattr(answer.contents, "value", answer.contents))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('"a b".sp^lit()', ["x.split(sep=..., maxsplit=...)", "method of str"]),
        ("xs = []\nxs.po^p()", ["method of list", "method of dict"]),
        (CLASS + "def f(r):\n    return r.wor^st\n", ["worst: str", "field of Review"]),
        (CLASS + 'Review(wor^st="x")', ["worst: str", "field of Review"]),
        (CLASS + 'Rev^iew(worst="x")', ["Review(worst, grade)", "class"]),
        ("def f(x):\n    return x\nf^(1)", ["f(x)", "function"]),
        ("pmap(len, [], lim^it=2)", ["pmap(f, xs, limit=8)", "argument of pmap"]),
        ("try:\n    1\nexcept Value^Error:\n    2", ["class of errors"]),
    ],
)
def test_hover_tells_of_methods_fields_and_errors(text: str, parts: list[str]) -> None:
    """What follows a dot, what names a field, and a class of errors are told of, in words of Python."""
    answer = told(text)
    assert all(each in answer for each in parts), answer


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ('"a b".^', "split", "pmap"),
        ("xs = [1]\nxs[0].^", "append", "pmap"),
        ("def f():\n    return [1]\nf().^", "append", "pmap"),
        (CLASS + "def f(r):\n    return r.^", "worst", "pmap"),
        (CLASS + "r = Review(^)", "grade=", "limit="),
        ("pmap(len, [], ^)", "limit=", "worst="),
        ("def f(deep=1):\n    return deep\nf(^)", "deep=", "limit="),
        (HEAD + '@task(^)\ndef f():\n    """x"""\n', "max_turns=", "limit="),
        ("try:\n    1\nexcept T^:\n    2", "TimeoutError", "class"),
        (HEAD + '@task(tools=["^"])\ndef f():\n    """x"""\n', "system:read_files", "pmap"),
        ('def f(row):\n    return f"{r^}"', "row", "class"),
    ],
)
def test_completion_knows_what_may_stand_here(text: str, wanted: str, unwanted: str) -> None:
    """Methods and fields after a dot whatever is before it, arguments by name, classes of errors, names in lists of tools, expressions in f-strings."""
    names = labels(text)
    assert wanted in names and unwanted not in names


def test_a_field_is_renamed_wherever_it_is_read() -> None:
    """In its class, in calls, and where it follows a dot, if one class has it."""
    doc, offset = at_mark(CLASS.replace("worst", "^worst") + 'r = Review(worst="x")\nr.worst\n')
    text = apply(doc.text, navigation.rename(doc, offset, "bug"))
    assert "worst" not in text and 'Review(bug="x")\nr.bug\n' in text


@pytest.mark.parametrize("more", ["class Other:\n    worst: int\nr.worst\n", 'r["worst"]\n'])
def test_a_field_that_may_be_read_elsewhere_is_not_renamed(more: str) -> None:
    """Of two classes nobody can tell whose it is; a text as a key is not a name."""
    doc, offset = at_mark(CLASS.replace("worst", "^worst", 1) + f'r = Review(worst="x")\n{more}')
    with pytest.raises(navigation.CannotRename):
        navigation.rename(doc, offset, "bug")


def test_a_method_is_not_a_function_of_that_name() -> None:
    """A function called as a method is renamed without the method's calls."""
    doc, offset = at_mark("def ^append(x):\n    return x\nxs = []\nxs.append(append(1))\n")
    assert "xs.append(add(1))" in apply(doc.text, navigation.rename(doc, offset, "add"))


def test_what_check_warns_of_is_told() -> None:
    """A name that is nearly one in sight, and what fails where it is caught, are warnings as in ``check``."""
    text = HEAD + "def review(x):\n    return x\nrevew(1)\ntry:\n    len(5)\nexcept TypeError:\n    pass\n"
    found = [(each.severity, each.error.code, each.error.hint) for each in document(text).survey.diagnostics]
    assert found[0] == ("warning", "name/suspicious", "did you mean 'review'?")
    assert [each[:2] for each in found[1:]] == [("warning", "type/argument")]
