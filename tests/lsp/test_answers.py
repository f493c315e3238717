"""What the language server answers, as functions of a text and a cursor."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from lsprotocol import types

from agentflow.cli.check.language import ShippedNames
from agentflow.cli.shared.mcp_names import KnownServers
from agentflow.connect.recorded import RecordedTool
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import ToolSpec
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.lang.formatter import format_text
from agentflow.lang.lexer import WorkflowLexer
from agentflow.lang.survey import Surveyor
from agentflow.lsp import completion, explain, highlighting, mistakes, navigation
from agentflow.lsp.document import Document, Lines, Shift, edited
from agentflow.lsp.open_texts import formatted
from agentflow.lsp.vocabulary import Vocabulary
from tests.benchmarks.lsp_cost import longest_part, text_of

NAMES = ShippedNames(())
VOCABULARY = Vocabulary(NAMES, {name: entry.description for name, entry in SCHEMAS.items()})
URI = "file:///a.sexp"
TASK = '(defatom review (params (path string) (most integer)) (instructions "See {{path}} {{most}}"))\n'


def document(text: str) -> Document:
    return Document("a.sexp", text, Surveyor(names=NAMES))


def at_mark(text: str) -> tuple[Document, int]:
    """The document of a text without its one mark ``^``, and the offset of that."""
    offset = text.index("^")
    return document(text.replace("^", "")), offset


def apply(text: str, edits: list[types.TextEdit]) -> str:
    lines = Lines(text)
    for edit in sorted(edits, key=lambda each: lines.offset(each.range.start), reverse=True):
        start, end = lines.offset(edit.range.start), lines.offset(edit.range.end)
        text = text[:start] + edit.new_text + text[end:]
    return text


# -- positions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", list(types.PositionEncodingKind))
def test_every_offset_and_back(encoding: types.PositionEncodingKind) -> None:
    """Columns count the units of the encoding; every offset that is not inside a line end comes back."""
    text = "aß🙂b\r\n\n🙂🙂\rx\u2028y\x0c\nend"
    lines = Lines(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n":
            assert lines.offset(lines.position(offset)) == offset
    assert lines.position(text.index("b")).character == {"utf-8": 7, "utf-16": 4, "utf-32": 3}[encoding.value]
    assert lines.position(text.index("end")) == types.Position(4, 0), "neither U+2028 nor a form feed ends a line"
    assert lines.offset(types.Position(0, 99)) == text.index("\r\n") and lines.offset(types.Position(99, 0)) == len(
        text
    )


def test_changes_in_a_row_see_each_other() -> None:
    """Random replacements through positions give what the same replacements of the text give."""
    rng = random.Random(5)
    lines, text = Lines("one 🙂 two\nthree\n"), "one 🙂 two\nthree\n"
    for _ in range(200):
        start = rng.randrange(len(text) + 1)
        end = rng.randrange(start, len(text) + 1)
        new = rng.choice(["", "🙂", "(f x)\n", "ä", "\n\n"])
        change = types.TextDocumentContentChangePartial(range=lines.range(start, end), text=new)
        lines, text = edited(lines, [change]), text[:start] + new + text[end:]
        assert lines.text == text


# -- mistakes ---------------------------------------------------------------------------------------------------------

FIXES = [
    ("(define total 1) (list totla)", "(define total 1) (list total)"),
    ('(system:read_files (file_pathz \'("a")))', '(system:read_files (file_paths \'("a")))'),
    ("(define (f x)\n  (+ x 1)\n", "(define (f x)\n  (+ x 1))\n"),
    ("(f 1))", "(f 1)"),
    ("(list None)", "(list nil)"),
]


@pytest.mark.parametrize(("text", "mended"), FIXES)
def test_a_hint_that_says_what_to_write_is_a_fix(text: str, mended: str) -> None:
    """Applied, the mistake is gone."""
    doc = Document("a.sexp", text, Surveyor(names=NAMES, bindings=["f"] if "None" in text else None))
    actions = list(mistakes.fixes(doc, URI, (0, len(text))))
    assert actions and actions[0].edit is not None and actions[0].edit.changes is not None
    assert apply(text, list(actions[0].edit.changes[URI])) == mended


def test_a_fix_belongs_to_its_span() -> None:
    """Asked elsewhere, or of a mistake whose hint is advice, there is none."""
    doc = document("(define total 1) (list totla)\n(if)")
    assert list(mistakes.fixes(doc, URI, (0, 5))) == []
    assert [each.title for each in mistakes.fixes(doc, URI, (0, 99))] == ["Write total"]


# -- explanations -----------------------------------------------------------------------------------------------------

HOVERS = [
    ("(c^ar '(1))", "(car list)"),
    ("(i^f 1 2)", "special form"),
    ("(define (f x y) x) (^f 1 2)", "(f x y)"),
    ("; Adds up.\n;; All of it.\n(define (su^m . xs) 1)", "Adds up.\nAll of it."),
    (TASK + "(re^view)", "(review (path string) (most integer))"),
    (TASK + "(review (pa^th 1))", "argument of review"),
    (TASK.replace("{{path", "{{p^ath"), "parameter of review"),
    ("(system:re^ad_files)", "Read text files."),
    ("(system:read_files (mis^sing 1))", "argument of system:read_files"),
]


@pytest.mark.parametrize(("text", "part"), HOVERS)
def test_hover(text: str, part: str) -> None:
    """A name explains itself: usage, documentation, the comment above its definition."""
    doc, offset = at_mark(text)
    hover = explain.hover(doc, VOCABULARY, offset)
    assert hover is not None and isinstance(hover.contents, types.MarkupContent)
    assert part in hover.contents.value


def test_the_words_of_a_server_are_no_markdown() -> None:
    """What a server says of its tools and their arguments is shown as it stands: no picture is loaded, no link runs anything."""
    said = "```\n![](https://example.com/p.png) [x](command:y)"
    schema = {"type": "object", "properties": {"a": {"enum": [said], "description": said}}}
    tool = RecordedTool(ToolSpec("t:echo", said, schema), True, False)
    servers = KnownServers({"t:echo": tool})
    names = servers.around(NAMES)
    vocabulary = Vocabulary(names, servers.descriptions, frozenset(servers.tools))
    for text in ("(t:ec^ho (a 1))", "(t:echo (^a 1))"):
        offset = text.index("^")
        doc = Document("a.sexp", text.replace("^", ""), Surveyor(names=names))
        hover = explain.hover(doc, vocabulary, offset)
        assert hover is not None and isinstance(hover.contents, types.MarkupContent)
        assert hover.contents.kind == types.MarkupKind.PlainText and said in hover.contents.value
        items = [*completion.completions(doc, vocabulary, offset), *_signatures(doc, vocabulary, offset)]
        assert not any(isinstance(each.documentation, types.MarkupContent) for each in items)


def _signatures(doc: Document, vocabulary: Vocabulary, offset: int) -> list[types.SignatureInformation]:
    help_ = explain.signature(doc, vocabulary, offset)
    return [] if help_ is None else list(help_.signatures)


@pytest.mark.parametrize("text", ["^ (list 1)", '(list "ca^r")', "; ca^r\n1", "(mystery^ 1)", "'(c^dr)"])
def test_nothing_to_say(text: str) -> None:
    """Spaces, texts, comments and names that nothing explains have no hover; quoted words of the language do."""
    doc, offset = at_mark(text)
    assert (explain.hover(doc, VOCABULARY, offset) is None) is ("'(" not in text)


SIGNATURES = [
    ("(string-join xs ^)", "(string-join", 1),
    ("(if a ^", "(if ", 1),
    ("(define (f x y . zs) x)\n(f 1 ^", "(f x y . zs)", 1),
    (TASK + "(review (most ^", "(review (path string) (most integer))", 1),
    (TASK + "(review (path (car ^", "(car list)", 0),
    ("(let ((add (lambda (a b) a))) (add 1 ^))", "(add a b)", 1),
    ("(list 1 2 3 ^)", "(list ", 0),
]


@pytest.mark.parametrize(("text", "label", "active"), SIGNATURES)
def test_signature_help(text: str, label: str, active: int) -> None:
    """The innermost call says what it takes and where the cursor is in it, while it is being written too."""
    doc, offset = at_mark(text)
    told = explain.signature(doc, VOCABULARY, offset)
    assert told is not None and told.signatures[0].label.startswith(label)
    assert told.active_parameter == active


# -- completion -------------------------------------------------------------------------------------------------------


def labels(text: str) -> list[str]:
    doc, offset = at_mark(text)
    return [each.label for each in completion.completions(doc, VOCABULARY, offset)]


def test_completion_begins_with_what_is_near() -> None:
    """Locals come before file-level names, those before tools and the language; forms only where one may begin."""
    found = labels("(define total 1)\n(define (f inner)\n  (list inn^))")
    assert found[0] == "inner" and found.index("total") < found.index("system:read_files") < found.index("car")
    assert "if" not in found and "true" in found
    assert "if" in labels("(define (f inner)\n  (i^))") and "inner" not in labels("(define (f inner) 1)\n(list ^)")


def test_parameters_of_the_call_around() -> None:
    """Inside a call of a task or tool, the parameters it is not given yet come first."""
    assert labels(TASK + "(review (path 1) (^))")[0] == "most"
    assert "file_paths" in labels("(system:read_files (fi^))")


def test_slots_of_instructions() -> None:
    """Inside ``{{...}}`` stand parameters and tasks, also while the form is unfinished; elsewhere in a text, nothing."""
    found = labels(TASK + '(defatom other (params (one string) two) (instructions "About {{o^')
    assert found[:2] == ["one", "two"] and "review" in found and "car" not in found
    assert labels('(defatom other (params one) (instructions "About o^') == []
    assert labels("; a comm^ent\n(list)") == []


def test_completion_replaces_the_word() -> None:
    """The whole word around the cursor is replaced, colons and question marks included."""
    doc, offset = at_mark("(system:re^ad)")
    items = completion.completions(doc, VOCABULARY, offset)
    edit = items[0].text_edit
    assert isinstance(edit, types.TextEdit) and (edit.range.start.character, edit.range.end.character) == (1, 12)


# -- names ------------------------------------------------------------------------------------------------------------


def test_definition_and_references() -> None:
    """From a use to its binding, and to all uses."""
    doc, offset = at_mark("(define (f x) (+ x 1))\n(^f (f 2))")
    (where,) = navigation.definitions(doc, offset)
    assert where.start == types.Position(0, 9)
    assert len(navigation.references(doc, offset)) == 3
    assert len(navigation.references(doc, offset, declaration=False)) == 2
    kinds = [each.kind for each in navigation.highlights(doc, offset)]
    assert kinds.count(types.DocumentHighlightKind.Write) == 1


RENAMES = [
    ("(define (f ^x) (+ x (let ((x x)) x)))", "y", "(define (f y) (+ y (let ((x y)) x)))"),
    ('(define ^f 1) (list f \'f "f") ; f', "g", '(define g 1) (list g \'f "f") ; f'),
    (TASK + "(re^view (path 1) (most 2))", "judge", TASK.replace("review", "judge") + "(judge (path 1) (most 2))"),
    (
        TASK + "(review (pa^th 1) (most 2))",
        "file",
        TASK.replace("path", "file") + "(review (file 1) (most 2))",
    ),
    ("(let loop ((i 0)) (if (> i 3) i (lo^op (+ i 1))))", "go", "(let go ((i 0)) (if (> i 3) i (go (+ i 1))))"),
]


@pytest.mark.parametrize(("text", "new", "renamed"), RENAMES)
def test_rename(text: str, new: str, renamed: str) -> None:
    """The same thing everywhere, slots and named arguments included, and nothing else of that name."""
    doc, offset = at_mark(text)
    assert apply(doc.text, navigation.rename(doc, offset, new)) == renamed
    assert not [each for each in document(renamed).survey.diagnostics if each.severity == "error"]


REFUSED = [
    ("(defmacro m (x) `(list ,x helper))\n(define hel^per 1)\n(m 1)", "h", "macro on line 1 uses 'helper'"),
    ("(defmacro m (x) `(list ,x))\n(let ((^y 1)) (m y))", "h", "macro on line 2 uses 'y'"),
    ("(ca^r '(1))", "h", "this text does not define 'car'"),
    ("(define ^x 1) (let ((y 2)) (+ x y))", "y", "'y' means something already on line 1"),
    ("(define (f ^x) (car x))", "car", "'car' means something already"),
    ("(define ^x 1)", "two words", "is not a name"),
    ("(define ^x 1)", "1", "is not a name"),
    ("(define ^x 1", "y", "cannot be read"),
    (TASK + "(re^view) (map 'review '())", "judge", "quoted data on line 2"),
    ("(list ^ 1)", "x", "there is no name here"),
]


@pytest.mark.parametrize(("text", "new", "reason"), REFUSED)
def test_a_rename_that_could_change_the_meaning_is_refused(text: str, new: str, reason: str) -> None:
    """With the reason."""
    doc, offset = at_mark(text)
    with pytest.raises(navigation.CannotRename, match=reason.replace("(", r"\(")):
        navigation.rename(doc, offset, new)


def test_outline() -> None:
    """What is defined at file level, with the procedures and parameters within."""
    doc = document(TASK + "(define (f x)\n  (define (inner y) y)\n  (inner x))\n(define total 1)\n")
    tree = [
        (each.name, each.kind.name, [child.name for child in each.children or ()]) for each in navigation.outline(doc)
    ]
    assert tree == [("review", "Event", ["path", "most"]), ("f", "Function", ["inner"]), ("total", "Variable", [])]


def test_a_text_that_cannot_be_read_keeps_its_last_names() -> None:
    """While a bracket is missing, hover, definition and outline go on, at where things are now."""
    doc = document("(define (f x) (+ x 1))\n(define (g y) (f y))\n(f 3)\n")
    old = len(navigation.outline(doc))
    cut = doc.text.index("(f y)")
    change = types.TextDocumentContentChangePartial(range=doc.lines.range(cut, cut), text="(list 1 ")
    doc.change([change])
    assert not doc.is_current and [each.error.code for each in doc.survey.diagnostics] == ["syntax/unclosed"]
    after = doc.text.rindex("(f 3)") + 1
    assert navigation.definitions(doc, after) == [doc.lines.range(9, 10)]
    assert doc.text[doc.lines.offset(navigation.references(doc, 9)[-1].start) :].startswith("f 3")
    assert len(navigation.outline(doc)) == old
    assert "y" in [each.label for each in completion.completions(doc, VOCABULARY, cut + len("(list 1 "))]


def test_where_two_texts_differ() -> None:
    """Offsets before the difference stay, those behind it move, those in it have no counterpart."""
    shift = Shift.between("abc def ghi", "abc XY ghi")
    assert [shift.new(each) for each in (0, 4, 5, 7, 11)] == [0, 4, None, 6, 10]
    assert [shift.old(each) for each in (0, 4, 5, 6, 10)] == [0, 4, None, 7, 11]
    assert Shift.between("aa", "aaa").new(2) == 2


# -- tokens and format --------------------------------------------------------------------------------------------------


def test_semantic_tokens() -> None:
    """Each token is its name's place, type and modifiers; a range gives the tokens in it."""
    text = "(define (f x)\n  (set! x (car x)))\n(f 1)\n"
    doc = document(text)
    lines = text.splitlines()
    seen: list[tuple[str, str]] = []
    line = column = 0
    data = highlighting.tokens(doc)
    for index in range(0, len(data), 5):
        down, right, length, kind, _ = data[index : index + 5]
        line, column = line + down, right if down else column + right
        seen.append((lines[line][column : column + length], highlighting.LEGEND.token_types[kind]))
    assert seen == [
        ("define", "keyword"),
        ("f", "function"),
        ("x", "parameter"),
        ("set!", "keyword"),
        ("x", "parameter"),
        ("car", "function"),
        ("x", "parameter"),
        ("f", "function"),
    ]
    assert len(highlighting.tokens(doc, (0, text.index("\n")))) == 15


@pytest.mark.parametrize("text", ["(define   x 1)", "(f 1)\n", "(list 1\n2)\n\n\n(x)", "(open", "(a)  \r\n(b)\r\n"])
def test_formatting_is_one_change(text: str) -> None:
    """It gives what ``agentflow fmt`` gives; a text whose brackets do not match stays as it is."""
    edits = formatted(document(text))
    expected = text if text == "(open" else format_text(text)
    assert len(edits) == (expected != text) and apply(text, edits) == expected


@pytest.mark.parametrize("path", sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.sexp")), ids=str)
def test_the_examples_are_understood(path: Path) -> None:
    """Every name in the shipped programs that is not data has a meaning, and each binding's references include it."""
    doc = document(path.read_text("utf-8"))
    words = {text for _, kind, text in WorkflowLexer().get_tokens_unprocessed(doc.text) if "Name" in str(kind)}
    assert words
    for each in doc.symbols:
        if each.what.role == "binding":
            assert each.start in [use.start for use in doc.symbols.occurrences_of(each)]


@pytest.mark.slow
def test_no_text_keeps_an_editor_waiting() -> None:
    """Opening a dense file of 5,000 lines, and a change that all of its forms are told of, leave the server to others: parts of 100 ms at most."""
    text = text_of(5_000)
    doc = Document("a.sexp", text, Surveyor(names=NAMES, limits=Limits(nodes=1_000_000)))
    assert longest_part(doc) < 100
    where = doc.lines.range(0, 0)
    doc.change([types.TextDocumentContentChangePartial(range=where, text="(define floor 3)")])
    assert longest_part(doc) < 100


async def test_a_survey_in_parts_is_the_one_at_once() -> None:
    """Whoever asks meanwhile gets the whole at once, and a change begins anew: each is the survey of the text there is."""
    text = text_of(200)
    whole = document(text)
    first, second = document(text), document("(x")
    for doc in (first, second):
        looking = asyncio.create_task(doc.surveyed())
        await asyncio.sleep(0)
        if doc is second:
            doc.change([types.TextDocumentContentChangeWholeDocument(text)])
        assert [each.error.to_dict() for each in doc.survey.diagnostics] == [
            each.error.to_dict() for each in whole.survey.diagnostics
        ]
        await looking
        assert [each.what.name for each in doc.symbols] == [each.what.name for each in whole.symbols]
