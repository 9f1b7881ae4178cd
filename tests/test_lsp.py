"""The language server: what it knows, and a session over the protocol."""

from __future__ import annotations

import asyncio
import sys

import pytest

from cgsafe.cli import main
from cgsafe.findings import Edit
from cgsafe.lsp import documents
from expectations import TORCH
from samples import finding

MODEL = f"""{TORCH}
class M(nn.Module):
    def forward(self, x: torch.Tensor):
        s = "\U0001d7d9"; y = x.item()
        return helper(x)


def helper(t):
    return t.tolist()
"""


def test_documents_are_checked_as_they_are_in_the_editor(write, tmp_path):
    write({"m.py": "x = 1\n", "cgsafe.toml": "ignore = ['CG101']"})
    path = str(tmp_path / "m.py")
    answer = documents.check_here([path], {path: MODEL.encode()})
    assert [(f.line, f.code) for f in answer.findings[path]] == [(7, "CG102"), (12, "CG102")]
    assert answer.problems == []
    assert "AcceleratorError" in answer.texts["CG102"]


def test_edits_come_along(write, tmp_path):
    write({"m.py": "x = 1\n"})
    path = str(tmp_path / "m.py")
    text = f"{TORCH}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n"
    text += "        return x + torch.tensor([0, 0], device=x.device)\n"
    ((found,),) = documents.check_here([path], {path: text.encode()}).findings.values()
    assert found.code == "CG201"
    assert found.fix is not None
    assert found.fix.edits


def test_what_goes_wrong_is_a_problem_and_no_crash(write, tmp_path):
    write({"m.py": "x = 1\n", "cgsafe.toml": "nonsense = 1"})
    path = str(tmp_path / "m.py")
    assert "unknown key `nonsense`" in documents.check_here([path], {path: b""}).problems[0]
    (tmp_path / "cgsafe.toml").unlink()
    assert "syntax error" in documents.check_here([path], {path: b"def\n"}).problems[0]


def test_half_written_code_keeps_the_findings_that_the_editor_shows(write, tmp_path):
    pytest.importorskip("pygls")
    from lsprotocol import types
    from pygls.workspace import Workspace

    from cgsafe.lsp.server import make

    write({"m.py": MODEL, "n.py": MODEL})
    uri, other = ((tmp_path / name).as_uri() for name in ("m.py", "n.py"))
    server = make(documents.check_here, quiet=0)
    server.protocol._workspace = Workspace(None)
    sent = []
    server.text_document_publish_diagnostics = sent.append
    server.window_log_message = lambda params: None

    async def session() -> list[list[tuple[str, int]]]:
        seen = []
        for version, text in enumerate((MODEL, MODEL + "def half(", MODEL + "def half(): pass"), 1):
            sent.clear()
            for document in (uri, other):
                item = types.TextDocumentItem(document, "python", version, text if document == uri else MODEL)
                server.workspace.put_text_document(item)
            server._open = {uri, other}
            server.soon(0)
            await server._waiting
            seen.append([(params.uri, len(params.diagnostics)) for params in sent])
        return seen

    assert asyncio.run(session()) == [[(uri, 2), (other, 2)], [(other, 2)], [(uri, 2), (other, 2)]]


def test_each_document_has_the_configuration_of_its_own_folder(write, tmp_path):
    write(
        {"a/cgsafe.toml": "ignore = ['CG1']", "a/m.py": "", "b/cgsafe.toml": "", "b/m.py": "", "c/cgsafe.toml": "x = 1"}
    )
    paths = [str(tmp_path / name / "m.py") for name in "abc"]
    answer = documents.check_here(paths, {path: MODEL.encode() for path in paths})
    assert list(answer.findings) == [paths[1]]
    (problem,) = answer.problems
    assert "unknown key `x`" in problem


def test_what_is_known_of_another_text_is_not_offered():
    """After an edit the places of the last check are wrong, until the next one has run."""
    pytest.importorskip("pygls")
    from lsprotocol import types
    from pygls.workspace import Workspace

    from cgsafe.lsp.server import make

    uri = "file:///m.py"
    answers = [documents.Answer({"/m.py": [finding(path="/m.py")]})]
    server = make(lambda paths, contents: answers.pop(), quiet=0)
    server.protocol._workspace = Workspace(None)
    server.workspace.put_text_document(types.TextDocumentItem(uri, "python", 1, "a = 1\nif x > 0: pass\n"))
    sent = []
    server.text_document_publish_diagnostics = sent.append
    server.window_log_message = sent.append
    assert server.findings("file:///never-opened.py") == []

    async def session() -> None:
        server.opened(uri)
        await server._waiting
        assert len(server.findings(uri)) == len(sent[-1].diagnostics) == 1
        server.workspace.put_text_document(types.TextDocumentItem(uri, "python", 2, "x"))
        assert server.findings(uri) == []
        server.soon(0)
        await server._waiting  # the check fails, for there are no more answers
        assert "IndexError" in sent[-2].message
        assert list(sent[-1].diagnostics) == []

    asyncio.run(session())


def test_explanations_and_places():
    found = finding(message="m \x1b[2J")
    text = documents.explanation(found, "RuntimeError: no\n  more")
    assert text.splitlines()[0] == "CG101 tensor-truth-value (error, medium confidence)"
    assert "m \\x1b[2J" in text
    assert "  model.py:2 Model.forward the truth value is taken here" in text
    assert text.endswith("the GPU says: RuntimeError: no more")
    assert documents.at([found], 2, 8) == documents.at([found], 2, 13) == [found]
    assert documents.at([found], 2, 7) == documents.at([found], 3, 8) == []
    assert documents.overlapping([found], 1, 2) == [found]
    assert documents.overlapping([found], 3, 4) == []


def test_the_edit_that_silences():
    text = "a = 1\r\nif x > 0: pass\r\n"
    assert documents.ignoring("p", text, finding()) == Edit("p", 2, 1, 2, 15, "if x > 0: pass  # cgsafe: ignore[CG101]")
    long = f"a = 1\nif x > 0: '{'a' * 120}'\n"
    assert documents.ignoring("p", long, finding()) == Edit("p", 2, 1, 2, 1, "# cgsafe: ignore[CG101]\n")


def test_without_pygls_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pygls", None)
    for name in [name for name in sys.modules if name.startswith(("pygls.", "cgsafe.lsp.server"))]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["server"]) == 2
    assert "pip install 'cgsafe[lsp]'" in capsys.readouterr().err


def test_a_session(write, tmp_path):
    """Open, hover, ask for actions, change: over standard input and output, as an editor does."""
    pytest.importorskip("pygls")
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    write({"m.py": MODEL, "pyproject.toml": ""})
    uri = (tmp_path / "m.py").as_uri()
    item = types.TextDocumentItem(uri, "python", 1, MODEL)
    document = types.TextDocumentIdentifier(uri)

    async def session() -> None:
        client = LanguageClient("test", "1")
        published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def diagnostics(params: types.PublishDiagnosticsParams) -> None:
            published.put_nowait(params)

        @client.feature(types.WINDOW_LOG_MESSAGE)
        def log(params: types.LogMessageParams) -> None:
            pass

        await client.start_io(sys.executable, "-m", "cgsafe", "server")
        capabilities = types.ClientCapabilities()
        await client.initialize_async(types.InitializeParams(capabilities, root_uri=tmp_path.as_uri()))
        client.initialized(types.InitializedParams())
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        first = await asyncio.wait_for(published.get(), 120)
        assert [(d.code, d.range.start.line) for d in first.diagnostics] == [("CG102", 6), ("CG102", 11)]
        # The character before is one for Python, and two for the protocol.
        assert first.diagnostics[0].range.start.character == MODEL.splitlines()[6].index("x.item") + 1
        assert len(first.diagnostics[1].related_information or ()) == 3

        hover = await client.text_document_hover_async(types.HoverParams(document, types.Position(11, 12)))
        assert hover is not None
        assert "calls helper" in hover.contents.value  # type: ignore[union-attr]
        nothing = await client.text_document_hover_async(types.HoverParams(document, types.Position(0, 0)))
        assert nothing is None

        context = types.CodeActionContext(first.diagnostics)
        asked = types.CodeActionParams(document, first.diagnostics[1].range, context)
        actions = await client.text_document_code_action_async(asked)
        silence = next(a for a in actions or () if a.title == "Silence CG102 here with a comment")
        (edit,) = silence.edit.changes[uri]  # type: ignore[union-attr, index]
        change = types.TextDocumentContentChangePartial(edit.range, edit.new_text)
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(version=2, uri=uri), [change])
        )
        second = await asyncio.wait_for(published.get(), 120)
        assert (second.version, [d.range.start.line for d in second.diagnostics]) == (2, [6])

        client.text_document_did_close(types.DidCloseTextDocumentParams(document))
        third = await asyncio.wait_for(published.get(), 120)
        assert list(third.diagnostics) == []
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()

    asyncio.run(session())
