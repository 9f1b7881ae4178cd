"""Suggested fixes as edits: what a rule proposes becomes spans of source text to replace.

A rule proposes an edit by naming a transformer and its arguments; it knows nothing of files or positions:

    Fix("Use `torch.linalg.inv_ex`", "unsafe", transform=("call-function", "torch.linalg.inv", "torch.linalg.inv_ex", "[0]"))

A transformer is a function that gets the `Target` (the expression under the finding, in its file) and these arguments. It
returns a `Rewrite`, or None where the code is not written in a way that it can change; the fix is then by hand. The safety
that the rule names is the best that is possible: a Rewrite with `safe=False` makes it "unsafe".

    @transformer("double-negation")
    def double_negation(at: Target) -> Rewrite | None:
        node = at.node
        if not (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.UnaryOp)):
            return None
        return Rewrite([at.replace(node, at.text(node.operand.operand))])

Positions come from `ast` (`at.node`, `at.parent(node)`, `at.statement()`). Whatever shuffles parts of an expression works
on `at.parse(node)`, a libcst tree of that expression alone, and gives it back with `at.rendered(node, tree)`: comments, line
ends and spaces of what stays are kept that way, and edits are trimmed to what really differs. `at.file.qualified(node)` says
which import a name comes from, `at.file.named("torch.full")` how to write one here, with the edit for an import if it takes
one. Transformers of other packages are named "module:function". New ones go into `calls.py` or `statements.py`.

Edits are only worked out when somebody asks for them (`Settings.edits`), and only then is libcst imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from cgsafe.findings import Edit, Finding, Fix, Report
from cgsafe.source import Source, read

if TYPE_CHECKING:
    from cgsafe.fixes.target import Rewrite, SourceFile
    from cgsafe.settings import Settings

TRANSFORMERS: dict[str, Callable[..., Rewrite | None]] = {}


def transformer(name: str) -> Callable[[Callable[..., Rewrite | None]], Callable[..., Rewrite | None]]:
    """Make a function known as the transformer of this name."""

    def register(function: Callable[..., Rewrite | None]) -> Callable[..., Rewrite | None]:
        TRANSFORMERS[name] = function
        return function

    return register


def add_edits(report: Report, settings: Settings) -> None:
    """Give the findings that propose a transformation its edits; where it does not apply, the fix is by hand."""
    files: dict[str, SourceFile | None] = {}
    report.findings = [_with_edits(finding, settings, files) for finding in report.findings]


def _with_edits(finding: Finding, settings: Settings, files: dict[str, SourceFile | None]) -> Finding:
    fix = finding.fix
    if fix is None or not fix.transform:
        return finding
    if finding.path not in files:
        files[finding.path] = _file(finding.path, settings)
    file = files[finding.path]
    rewrite = _rewrite(finding, fix, file) if file is not None else None
    if rewrite is None or not rewrite.changes:
        return replace(finding, fix=Fix(fix.description, "manual"))
    assert file is not None
    edits = tuple(
        Edit(finding.path, *file.position(start), *file.position(end), text) for start, end, text in rewrite.changes
    )
    safety = fix.safety if rewrite.safe else "unsafe"
    return replace(finding, fix=Fix(fix.description, safety, edits, fix.transform))


def _file(path: str, settings: Settings) -> SourceFile | None:
    from cgsafe.fixes.target import SourceFile

    source = read(path if path == "-" else os.path.abspath(path), settings.stdin, settings.contents)
    if not isinstance(source, Source):
        return None
    try:
        return SourceFile(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _rewrite(finding: Finding, fix: Fix, file: SourceFile) -> Rewrite | None:
    from cgsafe.fixes.target import Target

    name, *arguments = fix.transform
    try:
        start = file.offset(finding.line, finding.column)
        end = file.offset(finding.end_line, finding.end_column)
        target = Target.at(file, start, end)
        return None if target is None else _function(name)(target, *arguments)
    except Exception:  # a fix that cannot be made must not take the report down with it
        if os.environ.get("CGSAFE_DEBUG"):
            raise
        return None


def _function(name: str) -> Callable[..., Rewrite | None]:
    from importlib import import_module

    if ":" in name:
        module, _, function = name.partition(":")
        return getattr(import_module(module), function)
    import_module("cgsafe.fixes.calls")
    import_module("cgsafe.fixes.statements")
    return TRANSFORMERS[name]
