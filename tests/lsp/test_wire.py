"""``agentflow lsp`` as an editor meets it: a process that speaks the protocol over its standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient

from agentflow.cli.check.language import check_files
from agentflow.cli.shared.common import Exit
from tests.cli.test_seeded_mistakes import SEEDED

APP = """
import sys
from agentflow import AgentFlow
print("printed while it is imported")
flow = AgentFlow(model="offline")

@flow.tool
def look_up(word: str) -> str:
    '''Looks a word up.'''
    return word
"""
pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "agentflow", "lsp"]


async def start(client: LanguageClient) -> None:
    await client.initialize_session(
        types.InitializeParams(capabilities=types.ClientCapabilities(), root_uri=None, process_id=None)
    )


@pytest_lsp.fixture(config=ClientServerConfig(server_command=COMMAND), scope="module", loop_scope="module")
async def client(lsp_client: LanguageClient) -> AsyncGenerator[None, None]:
    await start(lsp_client)
    yield
    await lsp_client.shutdown_session()


async def opened(client: LanguageClient, text: str, uri: str = "file:///w/a.sexp") -> str:
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "agentflow", 1, text)))
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return uri


def position(text: str, mark: str) -> types.Position:
    """Where ``mark`` begins, in UTF-16 units."""
    before = text[: text.index(mark)]
    return types.Position(before.count("\n"), len(before.rpartition("\n")[2].encode("utf-16-le")) // 2)


def extent_of(told: types.Range) -> tuple[int, int, int, int]:
    """Lines and columns from 1, as ``check`` counts them, of a text whose characters each are one unit."""
    return told.start.line + 1, told.start.character + 1, told.end.line + 1, told.end.character + 1


async def test_it_says_what_check_says(
    client: LanguageClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each seeded mistake arrives with the code, span, severity and hint that ``check --json`` prints."""
    path = tmp_path / "seeded.sexp"
    path.write_text(SEEDED)
    assert check_files([str(path)], as_json=True) == Exit.DIAGNOSTICS
    (report,) = json.loads(capsys.readouterr().out)["files"]
    uri = await opened(client, SEEDED, path.as_uri())
    severities = {types.DiagnosticSeverity.Error: "error", types.DiagnosticSeverity.Warning: "warning"}
    told = [
        (
            severities[each.severity or types.DiagnosticSeverity.Hint],
            each.code,
            *extent_of(each.range),
            each.message,
        )
        for each in client.diagnostics[uri]
    ]
    assert told == [
        (
            each["severity"],
            each["code"],
            *(each["span"][at] for at in ("line", "column", "end_line", "end_column")),
            "\nhint: ".join(filter(None, (each["message"], each["hint"]))),
        )
        for each in report["diagnostics"]
    ]


async def test_an_editor_at_work(client: LanguageClient) -> None:
    """Open, ask, mistype, take the fix, rename, format: positions count UTF-16 units."""
    text = '(define (größe x) (+ x 1))\n(define total "🙂") (list total (größe 1) (lenght total))\n'
    uri = await opened(client, text)
    document = types.TextDocumentIdentifier(uri)
    (found,) = client.diagnostics[uri]
    assert (found.code, found.range.start) == ("name/suspicious", position(text, "lenght"))
    (action,) = (
        await client.text_document_code_action_async(
            types.CodeActionParams(document, found.range, types.CodeActionContext([found]))
        )
        or []
    )
    assert isinstance(action, types.CodeAction) and action.edit is not None and action.edit.changes is not None
    (edit,) = action.edit.changes[uri]
    assert (edit.new_text, edit.range) == ("length", found.range)
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(
            types.VersionedTextDocumentIdentifier(2, uri),
            [types.TextDocumentContentChangePartial(text=edit.new_text, range=edit.range)],
        )
    )
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert not client.diagnostics[uri]
    use = position(text, "total (größe")
    renamed = await client.text_document_rename_async(types.RenameParams(document, use, "summe"))
    assert renamed is not None and renamed.changes is not None and len(renamed.changes[uri]) == 3
    assert {each.new_text for each in renamed.changes[uri]} == {"summe"}
    hover = await client.text_document_hover_async(types.HoverParams(document, position(text, "größe 1")))
    assert hover is not None and "(größe x)" in str(hover.contents)
    tokens = await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document))
    assert tokens is not None and len(tokens.data) % 5 == 0 and tokens.data
    edits = await client.text_document_formatting_async(
        types.DocumentFormattingParams(document, types.FormattingOptions(2, True))
    )
    assert edits is not None and len(edits) == 1


async def test_texts_in_python(client: LanguageClient) -> None:
    """A file of Python that is a workflow text is served as any other is; of one that is none, nothing is said."""
    text = "from agentflow.workflow import pmap\ntotal = 1\npmap(len, [totla()])\nwith total: pass\n"
    uri = await opened(client, text, "file:///w/a.py")
    document = types.TextDocumentIdentifier(uri)
    assert [each.code for each in client.diagnostics[uri]] == ["name/suspicious", "syntax/not-here"]
    hover = await client.text_document_hover_async(types.HoverParams(document, position(text, "pmap(len")))
    assert hover is not None and "pmap(f, xs, limit=8)" in str(hover.contents)
    renamed = await client.text_document_rename_async(types.RenameParams(document, position(text, "total ="), "summe"))
    assert renamed is not None and renamed.changes is not None and len(renamed.changes[uri]) == 2
    other = await opened(client, "import os\nwith open('x') as f: pass\n", "file:///w/other.py")
    assert not client.diagnostics[other]


async def test_changes_are_looked_at_when_no_more_come(client: LanguageClient) -> None:
    """Ten changes in a row give one list of mistakes, that of the last text."""
    uri = await opened(client, "1")
    for number in range(2, 12):
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(number, uri),
                [types.TextDocumentContentChangeWholeDocument(f"(car 1 {number})")],
            )
        )
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    await asyncio.sleep(0.4)
    assert [each.code for each in client.diagnostics[uri]] == ["arity/primitive"]


async def test_a_refused_rename_says_why(client: LanguageClient) -> None:
    """The editor shows a sentence, not a stack."""
    uri = await opened(client, "(defmacro m (x) `(list ,x)) (define y 1) (m y)")
    with pytest.raises(Exception, match="macro on line 1 uses 'y'"):
        await client.text_document_rename_async(
            types.RenameParams(types.TextDocumentIdentifier(uri), types.Position(0, 36), "z")
        )


async def test_the_names_of_a_flow(tmp_path: Path) -> None:
    """With ``--app`` its tools are there; what its module prints does not disturb the protocol."""
    (tmp_path / "wired.py").write_text(APP)
    client = pytest_lsp.make_test_lsp_client()
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"}
    await client.start_io(*COMMAND, "--app", "wired", env=environment, cwd=str(tmp_path))
    try:
        await start(client)
        uri = await opened(client, "(look_up (wrod 1))")
        assert [each.code for each in client.diagnostics[uri]] == ["call/missing-parameter", "call/unknown-parameter"]
        found = await client.text_document_completion_async(
            types.CompletionParams(types.TextDocumentIdentifier(uri), types.Position(0, 5))
        )
        assert isinstance(found, types.CompletionList) and "look_up" in [each.label for each in found.items]
    finally:
        await client.shutdown_session()
        await client.stop()


@pytest.mark.slow
@pytest.mark.parametrize("option", [("--app", "nowhere_at_all"), ("--mcp", "nowhere_at_all=false")])
async def test_what_is_not_known(option: tuple[str, str], tmp_path: Path) -> None:
    """The editor is told of a flow that cannot be loaded and of a server whose tools are not known, and served without them."""
    client = pytest_lsp.make_test_lsp_client()
    await client.start_io(*COMMAND, *option, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
    try:
        await start(client)
        await client.wait_for_notification(types.WINDOW_SHOW_MESSAGE)
        assert "nowhere_at_all" in client.messages[0].message
        assert client.diagnostics[await opened(client, "(if)")] != []
    finally:
        await client.shutdown_session()
        await client.stop()
