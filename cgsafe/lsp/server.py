"""The language server itself: findings as diagnostics, paths on hover, edits as code actions."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from cgsafe import __version__
from cgsafe.findings import Edit, Finding, Severity
from cgsafe.lsp import documents
from cgsafe.report.style import escape

QUIET = 0.4  # seconds without a change before a document is checked


class Server(LanguageServer):
    """Checks all open documents together whenever one of them changes; an edit in a helper may break its callers."""

    def __init__(self, check: documents.Check = documents.check, quiet: float = QUIET) -> None:
        super().__init__("cgsafe", __version__)
        self.answer = documents.Answer()
        self._checked: dict[str, str] = {}  # the texts that the answer is about
        self._check = check
        self._quiet = quiet
        self._open: set[str] = set()
        self._waiting: asyncio.Task[None] | None = None
        self._asked = 0  # how often a check was asked for
        self._running = asyncio.Lock()

    def opened(self, uri: str) -> None:
        self._open.add(uri)
        self.soon(0)

    def closed(self, uri: str) -> None:
        self._open.discard(uri)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def soon(self, delay: float | None = None) -> None:
        """Check once nothing has changed for a while."""
        self._asked += 1
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.ensure_future(self._later(self._quiet if delay is None else delay))

    async def _later(self, delay: float) -> None:
        number = self._asked
        await asyncio.sleep(delay)
        self._waiting = None  # from here on it is not called off any more
        async with self._running:
            if number == self._asked:  # else a later one sees all that this one would
                await self._now()

    async def _now(self) -> None:
        texts = {uri: self.workspace.get_text_document(uri).source for uri in sorted(self._open)}
        versions = {uri: self.workspace.get_text_document(uri).version for uri in texts}
        paths = {uri: path for uri in texts if (path := self.path_of(uri))}
        if not paths:
            return
        contents = {paths[uri]: texts[uri].encode("utf-8", "surrogatepass") for uri in paths}
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(None, self._check, list(paths.values()), contents)
        except Exception as error:  # its process was killed, or could not be started
            answer = documents.Answer(problems=[f"{type(error).__name__}: {error}"])
        self.answer, self._checked = answer, texts
        for problem in self.answer.problems:
            self.window_log_message(types.LogMessageParams(types.MessageType.Warning, f"cgsafe: {escape(problem)}"))
        for uri, path in paths.items():
            if not self.is_current(uri):
                continue  # it was edited or closed meanwhile; if it is still open, another check is on its way
            if path in self.answer.unread:
                continue  # half-written code: what the editor shows moves along with its lines, and is better than nothing
            found = self.answer.findings.get(path, [])
            diagnostics = [self._diagnostic(uri, finding) for finding in found]
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri, diagnostics, version=versions[uri])
            )

    @staticmethod
    def path_of(uri: str) -> str:
        """The absolute path of a document; "" where it is no file."""
        path = uris.to_fs_path(uri) if uri.startswith("file:") else None
        return os.path.abspath(path) if path else ""

    def is_current(self, uri: str) -> bool:
        """Whether a document is open and still what was checked: only then the places of its findings are right."""
        return uri in self._open and self.workspace.get_text_document(uri).source == self._checked.get(uri)

    def findings(self, uri: str) -> list[Finding]:
        return self.answer.findings.get(self.path_of(uri), []) if self.is_current(uri) else []

    def range_of(self, uri: str, line: int, column: int, end_line: int, end_column: int) -> types.Range:
        """A range of ours (from 1, in characters) as the client counts."""
        document = self.workspace.get_text_document(uri)
        units = document.position_codec.range_to_client_units(
            document.lines,
            types.Range(types.Position(line - 1, column - 1), types.Position(end_line - 1, end_column - 1)),
        )
        return units

    def _diagnostic(self, uri: str, finding: Finding) -> types.Diagnostic:
        steps = []
        if finding.trace:
            root = finding.root
            places = [(root.path, root.line, f"root: {root.reason}")]
            places += [(s.path, s.line, " ".join(filter(None, (s.function, s.note)))) for s in finding.trace]
            for path, line, text in places:
                start = types.Position(line - 1, 0)
                target = uris.from_fs_path(os.path.abspath(path)) or uri
                location = types.Location(target, types.Range(start, types.Position(line, 0)))
                steps.append(types.DiagnosticRelatedInformation(location, escape(text)))
        error = finding.severity is Severity.ERROR
        return types.Diagnostic(
            range=self.range_of(uri, finding.line, finding.column, finding.end_line, finding.end_column),
            message=escape(finding.message),
            severity=types.DiagnosticSeverity.Error if error else types.DiagnosticSeverity.Warning,
            code=finding.code,
            source="cgsafe",
            related_information=steps or None,
            data={"fingerprint": finding.fingerprint},
        )

    def text_edit(self, uri: str, edit: Edit) -> types.TextEdit:
        return types.TextEdit(
            self.range_of(uri, edit.line, edit.column, edit.end_line, edit.end_column), edit.replacement
        )


def make(check: documents.Check = documents.check, quiet: float = QUIET) -> Server:
    """A server with all its features."""
    server = Server(check, quiet)

    @server.feature(types.INITIALIZED)
    def initialized(ls: Server, params: types.InitializedParams) -> None:
        # Patterns of the configuration are relative to the working directory, as on the command line.
        root = ls.workspace.root_path
        if root and os.path.isdir(root):
            os.chdir(root)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
        ls.opened(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
        ls.soon()

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(ls: Server, params: types.DidSaveTextDocumentParams) -> None:
        ls.soon(0)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
        ls.closed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
        if not ls.findings(params.text_document.uri):
            return None
        document = ls.workspace.get_text_document(params.text_document.uri)
        place = document.position_codec.position_from_client_units(document.lines, params.position)
        found = documents.at(ls.findings(params.text_document.uri), place.line + 1, place.character + 1)
        if not found:
            return None
        texts = [documents.explanation(finding, ls.answer.texts.get(finding.code, "")) for finding in found]
        return types.Hover(types.MarkupContent(types.MarkupKind.PlainText, "\n\n".join(texts)))

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
    )
    def code_action(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        first, last = params.range.start.line + 1, params.range.end.line + 1
        actions = []
        for finding in documents.overlapping(ls.findings(uri), first, last):
            actions.extend(_actions(ls, uri, finding, params.context.diagnostics))
        return actions

    return server


def _actions(ls: Server, uri: str, finding: Finding, shown: Any) -> list[types.CodeAction]:
    """The edits for a finding: its fix, if it has one in this file, and a comment that silences it."""
    mine = [d for d in shown if d.data == {"fingerprint": finding.fingerprint}] or None
    path = ls.path_of(uri)
    choices: list[tuple[str, list[Edit], bool]] = []
    fix = finding.fix
    if fix is not None and fix.edits and all(os.path.abspath(edit.path) == path for edit in fix.edits):
        label = escape(fix.description) + (" (to be reviewed)" if fix.safety == "unsafe" else "")
        choices.append((label, list(fix.edits), fix.safety == "safe"))
    if finding.trace:
        edit = documents.ignoring(path, ls.workspace.get_text_document(uri).source, finding)
        if edit is not None:
            choices.append((f"Silence {finding.code} here with a comment", [edit], False))
    return [
        types.CodeAction(
            title=label,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=mine,
            is_preferred=preferred,
            edit=types.WorkspaceEdit(changes={uri: [ls.text_edit(uri, edit) for edit in edits]}),
        )
        for label, edits, preferred in choices
    ]
