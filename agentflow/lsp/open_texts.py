"""The server: open texts, and handlers that pass the protocol's requests to the functions of this package."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import BinaryIO, Protocol

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Surface
from agentflow.lang.formatter import format_text
from agentflow.lang.survey import Surveyor
from agentflow.lsp import completion, explain, highlighting, mistakes, navigation
from agentflow.lsp.document import Document, Lines, Shift
from agentflow.lsp.vocabulary import PythonVocabulary, Vocabulary

DEBOUNCE_S = 0.15
"""Seconds to wait after the last change before diagnostics are computed."""
_TRIGGERS = ["(", ":", "{", "."]


class _AtPosition(Protocol):
    """A request about a position in a text."""

    @property
    def text_document(self) -> types.TextDocumentIdentifier: ...
    @property
    def position(self) -> types.Position: ...


class Server(LanguageServer):
    """A language server for programs.

    ``vocabulary`` describes names around the text; ``surveyor`` creates a surveyor for each text; ``version`` is shown to
    the editor, and ``warning`` once it has connected.
    """

    def __init__(
        self, vocabulary: Vocabulary, surveyor: Callable[[], Surveyor], version: str, warning: str | None = None
    ) -> None:
        super().__init__("agentflow", version)  # pyright: ignore[reportUnknownMemberType]
        self._vocabularies: dict[Surface, Vocabulary] = {
            "sexp": vocabulary,
            "python": PythonVocabulary(vocabulary.names, vocabulary.descriptions, vocabulary.foreign),
        }
        self.surveyor = surveyor
        self.documents: dict[str, Document] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._warning = warning
        _register(self)

    def words(self, document: Document) -> Vocabulary:
        """The meanings of names in the language of a text."""
        return self._vocabularies[document.surface]

    def document(self, uri: str) -> Document:
        """The open text at ``uri``. Raises JsonRpcInvalidParams if it is not open."""
        try:
            return self.documents[uri]
        except KeyError:
            raise JsonRpcInvalidParams(f"{uri} is not open") from None

    async def surveyed(self, uri: str) -> Document:
        """The open text at ``uri``, with its survey computed. Raises JsonRpcInvalidParams if it is not open."""
        document = self.document(uri)
        await document.surveyed()
        return document

    async def at(self, params: _AtPosition) -> tuple[Document, int]:
        """The text and the character offset of a request."""
        document = await self.surveyed(params.text_document.uri)
        return document, document.lines.offset(params.position)

    def opened(self, item: types.TextDocumentItem) -> None:
        """Open a text and publish its diagnostics."""
        name = to_fs_path(item.uri) or item.uri
        encoding = self.workspace.position_encoding or types.PositionEncodingKind.Utf16
        self.documents[item.uri] = Document(name, item.text, self.surveyor(), version=item.version, encoding=encoding)
        self._schedule_diagnostics(item.uri)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """Apply changes, and publish diagnostics once no more arrive for a moment."""
        uri = params.text_document.uri
        self.document(uri).change(params.content_changes, params.text_document.version)
        self._schedule_diagnostics(uri, DEBOUNCE_S)

    def closed(self, uri: str) -> None:
        """Close a text and clear its diagnostics in the editor."""
        self._drop(uri)
        self.documents.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _schedule_diagnostics(self, uri: str, wait_s: float = 0.0) -> None:
        """Publish diagnostics after ``wait_s`` seconds, unless the text changes before."""
        self._drop(uri)
        self._looking[uri] = asyncio.get_running_loop().create_task(self._publish(uri, wait_s))

    async def _publish(self, uri: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        document = await self.surveyed(uri)
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, mistakes.diagnostics(document), version=document.version)
        )

    def greet(self) -> None:
        """Show the warning that arose before an editor had connected."""
        if self._warning is not None:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, self._warning))

    def _drop(self, uri: str) -> None:
        task = self._looking.pop(uri, None)
        if task is not None:
            task.cancel()


def serve(server: Server, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None) -> None:
    """Serve one editor over standard input and output until it disconnects."""
    logging.getLogger("pygls.protocol.json_rpc").addFilter(_is_unexpected)
    server.start_io(stdin, stdout)


def formatted(document: Document) -> list[types.TextEdit]:
    """The edit that formats a text; none if it is formatted already, its brackets do not match, or it is Python."""
    if document.surface == "python":
        return []
    try:
        text = format_text(document.text, name=document.name)
    except AgentflowError:
        return []
    old = document.text
    if old == text:
        return []
    shift = Shift.between(old, text)
    # Replace whole lines: an editor has no position between the two characters of a line end.
    start = old.rfind("\n", 0, shift.before) + 1
    end = old.find("\n", shift.after) + 1 or len(old)
    return [types.TextEdit(document.lines.range(start, end), text[start : end + shift.size])]


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Whether a logged error is unexpected; a refused request is an ordinary answer and is not logged."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, JsonRpcException) and error.code == types.LSPErrorCodes.RequestFailed)


def _refusal(error: navigation.CannotRename) -> JsonRpcException:
    return JsonRpcException(str(error), code=types.LSPErrorCodes.RequestFailed)


def _register(server: Server) -> None:
    _register_documents(server)
    _register_questions(server)
    _register_changes(server)


def _register_documents(server: Server) -> None:
    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        server.greet()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        server.opened(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        server.changed(params)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)


def _register_questions(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        document, offset = await server.at(params)
        return explain.hover(document, server.words(document), offset)

    @server.feature(types.TEXT_DOCUMENT_SIGNATURE_HELP, types.SignatureHelpOptions(trigger_characters=["(", " "]))
    async def signature(params: types.SignatureHelpParams) -> types.SignatureHelp | None:
        document, offset = await server.at(params)
        return explain.signature(document, server.words(document), offset)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=_TRIGGERS))
    async def complete(params: types.CompletionParams) -> types.CompletionList:
        document, offset = await server.at(params)
        return types.CompletionList(False, completion.completions(document, server.words(document), offset))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def definition(params: types.DefinitionParams) -> list[types.Location]:
        document, offset = await server.at(params)
        return _locations(params, navigation.definitions(document, offset))

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    async def references(params: types.ReferenceParams) -> list[types.Location]:
        document, offset = await server.at(params)
        declaration = params.context.include_declaration
        return _locations(params, navigation.references(document, offset, declaration=declaration))

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    async def highlight(params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
        return navigation.highlights(*await server.at(params))

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        return navigation.outline(await server.surveyed(params.text_document.uri))

    options = types.SemanticTokensRegistrationOptions(highlighting.LEGEND, full=True, range=True)

    @server.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, options)
    async def tokens(params: types.SemanticTokensParams) -> types.SemanticTokens:
        return types.SemanticTokens(highlighting.tokens(await server.surveyed(params.text_document.uri)))

    @server.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, options)
    async def tokens_of_range(params: types.SemanticTokensRangeParams) -> types.SemanticTokens:
        document = await server.surveyed(params.text_document.uri)
        return types.SemanticTokens(highlighting.tokens(document, _span(document.lines, params.range)))


def _register_changes(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        return formatted(server.document(params.text_document.uri))

    options = types.CodeActionOptions([types.CodeActionKind.QuickFix])

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        document = await server.surveyed(uri)
        return list(mistakes.fixes(document, uri, _span(document.lines, params.range)))

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    async def prepare(params: types.PrepareRenameParams) -> types.Range:
        try:
            return navigation.renamable(*await server.at(params))
        except navigation.CannotRename as error:
            raise _refusal(error) from None

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    async def rename(params: types.RenameParams) -> types.WorkspaceEdit:
        document, offset = await server.at(params)
        try:
            edits = navigation.rename(document, offset, params.new_name)
        except navigation.CannotRename as error:
            raise _refusal(error) from None
        return types.WorkspaceEdit(changes={params.text_document.uri: edits})


def _locations(params: _AtPosition, ranges: list[types.Range]) -> list[types.Location]:
    return [types.Location(params.text_document.uri, each) for each in ranges]


def _span(lines: Lines, asked: types.Range) -> tuple[int, int]:
    return lines.offset(asked.start), lines.offset(asked.end)
