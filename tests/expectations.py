"""Expected codes on the very line: `# expect: CG101`, in fixtures and in the small programs of the tests."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from cgsafe.findings import Report

_EXPECT = re.compile(r"#.*?\bexpect:\s*(CG\d+(?:\s*,\s*CG\d+)*)")

TORCH = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def expected_in(text: str) -> set[tuple[int, str]]:
    """(line, code) for each code that a comment asks for."""
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _EXPECT.search(line):
            found.update((number, code.strip()) for code in match[1].split(","))
    return found


def reported(report: Report) -> set[tuple[str, int, str]]:
    """(path, line, code) of all findings."""
    return {(f.path.removeprefix("./"), f.line, f.code) for f in report.findings}


def verify(check: Callable[..., Report], files: dict[str, str], **options: Any) -> Report:
    """Check the files; what is reported is exactly what their comments expect."""
    files = {name: textwrap.dedent(text).lstrip("\n") for name, text in files.items()}
    wanted = {(name, line, code) for name, text in files.items() for line, code in expected_in(text)}
    report = check(files, **options)
    assert not report.errors, "\n".join(f"error {e.path}:{e.line}: {e.message}" for e in report.errors)
    found = reported(report)
    assert found == wanted, _difference(files, found, wanted)
    return report


def verify_forward(check: Callable[..., Report], body: str, **options: Any) -> Report:
    """As `verify`, for the body of a forward with `x` (a tensor), `n` (an int) and `flag` (a bool)."""
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    head = "class Model(nn.Module):\n    def forward(self, x: torch.Tensor, n: int, flag: bool = False):\n"
    return verify(check, {"model.py": f"{TORCH}\n\n{head}{lines}\n"}, **options)


def _difference(files: dict[str, str], found: set[Any], wanted: set[Any]) -> str:
    rows = [("missed", *row) for row in sorted(wanted - found)] + [("false", *row) for row in sorted(found - wanted)]
    texts = []
    for what, path, line, code in rows:
        lines = files.get(path, "").splitlines()
        texts.append(f"{what} {code} {path}:{line}: {lines[line - 1].strip() if line <= len(lines) else ''}")
    return "\n".join(["", *texts])


def cases(table: dict[str, Any], gaps: dict[str, str] | None = None) -> list[Any]:
    """The table's values as parameters named by its keys; `gaps` tells which fail for now, and why."""
    gaps = gaps or {}
    assert gaps.keys() <= table.keys()
    return [
        pytest.param(value, id=name, marks=[pytest.mark.xfail(strict=True, reason=gaps[name])] if name in gaps else [])
        for name, value in table.items()
    ]
