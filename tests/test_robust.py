"""Files that are not what one hopes for: a message for that file, and the rest is checked all the same."""

from __future__ import annotations

import json
import os
import sys

import pytest

from cgsafe.cli import main
from expectations import TORCH

GOOD = TORCH + "\n\nclass M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.sum().item()\n"
BODY = "class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.sum().item()\n"


@pytest.fixture
def told(write, capsys, monkeypatch):
    """Check files through the command line: (exit code, findings as path:line, errors by path)."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(files, *arguments):
        write({"pyproject.toml": "", **files})
        code = main(["check", *(arguments or ["."]), "--output-format", "json", "--no-cache", "--jobs", "1"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        data = json.loads(out)
        errors = {e["path"]: (e["line"], e["message"]) for e in data["errors"]}
        assert all(message for _, message in errors.values())
        return code, [f"{f['path']}:{f['line']}" for f in data["findings"]], errors

    return run


FAULTS = {
    "syntax error": b"def f(:\n    pass\n",
    "unclosed bracket": b"x = (1,\n" * 3,
    "bad indentation": b"def f():\nreturn 1\n",
    "tabs and spaces": b"if 1:\n\tx = 1\n        y = 2\n",
    "Python 2": b"print 'text'\nexec 'x'\n",
    "unknown encoding": b"# -*- coding: nonsense -*-\nx = 1\n",
    "not UTF-8": b"x = '\xff\xfe'\n",
    "NUL byte": b"x = 1\x00\n",
    "UTF-16": "x = 1\n".encode("utf-16"),
    "binary": bytes(range(256)) * 8,
    "only a NUL": b"\x00",
    "bad escape in bytes": b"x = '\\N{nonsense}'\n",
    "return outside of a function, unclosed string": b"return 1\nx = 'abc\n",
    "merge conflict": b"<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> other\n",
    "template": b"{% if x %}\nimport {{ name }}\n{% endif %}\n",
    "notebook": b'{"cells": [{"source": ["x"]}], "nbformat": 4, trailing}\n',
}


@pytest.mark.parametrize("content", FAULTS.values(), ids=FAULTS)
def test_a_file_that_is_no_python(told, content):
    code, findings, errors = told({"bad.py": content, "good.py": GOOD, "zzz.py": GOOD})
    assert (code, findings) == (2, ["good.py:8", "zzz.py:8"])
    assert list(errors) == ["bad.py"]


ODD = {
    "byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "CRLF": GOOD.replace("\n", "\r\n").encode(),
    "old Mac line ends": GOOD.replace("\n", "\r").encode(),
    "mixed line ends": GOOD.replace("\n", "\r\n", 4).encode(),
    "no line end": GOOD.rstrip("\n").encode(),
    "latin-1 cookie": b"# coding: latin-1\n# \xe4\xf6\xfc\n" + GOOD.encode(),
    "latin-1 cookie, import": b"# -*- coding: iso-8859-15 -*-\nx = '\xa4'\n" + GOOD.encode(),
    "form feeds": GOOD.replace("\n\nclass", "\n\x0c\nclass").encode(),
    "other line separators in a string": ("s = '\x0b\x0c\x1c\u2028\x85'\n" + GOOD).encode(),
    "non-ASCII names": GOOD.replace("x", "größe").encode(),
    "wide characters before the hazard": GOOD.replace("return ", "return '😀', ").encode(),
    "tabs": GOOD.replace("    ", "\t").encode(),
    "shebang and encoding": b"#!/usr/bin/env python\n# vim: set fileencoding=utf-8 :\n" + GOOD.encode(),
    "docstring": b'"""text"""\n' + GOOD.encode(),
    "future import": b"from __future__ import annotations\n" + GOOD.encode(),
    "a module named like a builtin": b"import list, int, torch\n" + GOOD.encode(),
    "star imports of nothing": b"from nowhere import *\nfrom . import *\n" + GOOD.encode(),
    "imports beyond the top": b"from ..... import x\n" + GOOD.encode(),
    "an import of itself": b"import odd\nfrom odd import M as N\n" + GOOD.encode(),
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_an_odd_file_is_checked(told, content):
    code, findings, errors = told({"odd.py": content, "zzz.py": GOOD})
    assert errors == {}
    assert code == 1
    text = content.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    line = next(n for n, row in enumerate(text.split("\n"), 1) if ".item()" in row)
    assert findings == [f"odd.py:{line}", "zzz.py:8"]


@pytest.mark.parametrize("content", [b"", b"\n", b"# text", b"\xef\xbb\xbf", b"   \n\n", b'"""text"""'])
def test_a_file_with_nothing_in_it(told, content):
    code, findings, errors = told({"empty.py": content, "good.py": GOOD})
    assert (code, findings, errors) == (1, ["good.py:8"], {})


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_a_long_file(told):
    rows = [f"def f{n}(x):\n    return x + {n}\n" for n in range(25_000)]
    text = TORCH + "".join(rows) + BODY
    code, findings, errors = told({"long.py": text, "good.py": GOOD})
    assert (code, errors) == (1, {})
    assert findings == ["good.py:8", f"long.py:{text.count(chr(10))}"]


def test_a_long_function(told):
    rows = "".join(f"        y = x + {n}\n" for n in range(20_000))
    text = TORCH + BODY.replace("        return", rows + "        return")
    code, findings, errors = told({"long.py": text})
    assert (code, errors) == (1, {})
    assert findings == [f"long.py:{text.count(chr(10))}"]


def test_a_long_line_and_a_big_table(told):
    text = TORCH + "T = [" + "1, " * 100_000 + "]\nD = {" + ", ".join(f"'k{n}': {n}" for n in range(20_000)) + "}\n"
    code, findings, errors = told({"wide.py": text + BODY.replace("x.sum()", "x[T[0] : D['k1']].sum()")})
    assert (code, errors) == (1, {})
    assert findings == ["wide.py:8"]


DEEP = 500
NESTED = {
    "brackets": "x = " + "(" * 90 + "1" + ")" * 90,
    "lists": "x = " + "[" * 90 + "]" * 90,
    "unary": "x = " + "-" * DEEP + "1",
    "not": "x = " + "not " * DEEP + "1",
    "attributes": "x = a" + ".b" * DEEP,
    "calls": "x = a" + "()" * DEEP,
    "method chain": "x = a" + ".b(1)" * DEEP,
    "sums": "x = " + " + ".join(["1"] * 5000),
    "comparisons": "x = " + " < ".join(["a"] * 5000),
    "and": "x = " + " and ".join(["a"] * 5000),
    "elif": "if a:\n    pass\n" + "elif a:\n    pass\n" * DEEP,
    "else if": "".join("    " * n + f"if a{n}:\n" for n in range(95)) + "    " * 95 + "pass",
    "functions": "".join("    " * n + f"def f{n}():\n" for n in range(95)) + "    " * 95 + "pass",
    "classes": "".join("    " * n + f"class C{n}:\n" for n in range(95)) + "    " * 95 + "pass",
    "lambdas": "x = " + "lambda: " * DEEP + "1",
    "conditionals": "x = " + "1 if a else " * DEEP + "2",
    "strings": "x = " + "'a' " * 5000,
}


@pytest.mark.parametrize("where", ["module", "forward"])
@pytest.mark.parametrize("code", NESTED.values(), ids=NESTED)
def test_deep_nesting(told, code, where):
    """It is checked, or said to be too deep; never a crash, and never the end of the other files."""
    if where == "module":
        text = TORCH + "a = torch\n" + code + "\n" + BODY
    else:
        code = code.replace("x =", "z =", 1)
        inside = "\n".join("        " + row for row in ["a = x", *code.split("\n")])
        text = TORCH + BODY.replace("        return", inside + "\n        return")
    _, findings, errors = told({"deep.py": text, "good.py": GOOD})
    assert "good.py:8" in findings
    assert errors.keys() <= {"deep.py"}
    assert errors or any(f == f"deep.py:{text.count(chr(10))}" for f in findings)


@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
def test_nesting_beyond_what_python_can(told, depth):
    code, findings, errors = told({"deep.py": "x = " + "(" * depth + ")" * depth, "good.py": GOOD})
    assert (code, findings, list(errors)) == (2, ["good.py:8"], ["deep.py"])


def test_a_long_chain_of_calls(told):
    rows = "".join(f"def f{n}(t):\n    return f{n + 1}(t)\n\n" for n in range(400))
    text = TORCH + rows + "def f400(t):\n    return t\n\n" + BODY.replace("x.sum()", "f0(x.sum())")
    _, findings, errors = told({"chain.py": text, "good.py": GOOD})
    assert errors == {}
    assert "good.py:8" in findings


def test_a_long_chain_of_classes(told):
    rows = "".join(f"class C{n + 1}(C{n}):\n    pass\n\n" for n in range(300))
    text = TORCH + "class C0(nn.Module):\n    pass\n\n" + rows + BODY.replace("nn.Module", "C300")
    code, findings, errors = told({"chain.py": text})
    assert (code, findings, errors) == (1, [f"chain.py:{text.count(chr(10))}"], {})


CYCLES = {
    "classes": "class A(B):\n    pass\n\nclass B(A):\n    pass\n\n",
    "a class of itself": "class A(A):\n    pass\n\n",
    "constants": "a = b\nb = a\n",
    "a constant of itself": "a = a\na = a + a\n",
    "functions": "def f(x):\n    return g(x)\n\ndef g(x):\n    return f(x)\n\n",
    "decorators": "@d\ndef d(f):\n    return d(f)\n\n",
    "growing tuples": "def f(x):\n    return f((x, x))\n\n",
    "growing closures": "def f(x):\n    return f(lambda: x)\n\n",
    "growing partials": "from functools import partial\n\ndef f(x):\n    return f(partial(f, x))\n\n",
    "growing objects": "class C:\n    def __init__(self, x):\n        self.x = C(self)\n\n"
    "def f(x):\n    return C(x)\n\n",
    "modules that hold each other": "class P(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.q = Q()\n\n    def forward(self, x):\n        return self.q(x)\n\n"
    "class Q(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.p = P()\n\n"
    "    def forward(self, x):\n        return self.p(x)\n\ndef f(x):\n    return P()(x)\n\n",
    "properties": "class A:\n    @property\n    def p(self):\n        return self.p\n\ndef f(x):\n    return A().p\n\n",
    "generators": "def f(x):\n    yield from f(x)\n    yield x\n\n",
    "mutual closures": "def f(x):\n    def g(y):\n        return f(g)\n    return g(x)\n\n",
    "__getattr__": "class A:\n    def __getattr__(self, name):\n        return self.other\n\n"
    "def f(x):\n    return A().y\n\n",
    "__call__": "class A:\n    def __call__(self, x):\n        return self(x)\n\ndef f(x):\n    return A()(x)\n\n",
    "string annotations": "A = 'A'\nB = 'Optional[B]'\n\ndef f(x: 'A', y: 'B' = None) -> \"'A'\":\n    return x\n\n",
}


@pytest.mark.parametrize("cycle", CYCLES.values(), ids=CYCLES)
def test_what_leads_back_to_itself(told, cycle):
    call = "        f(x)\n" if "def f(" in cycle else "        x + 1\n"
    text = TORCH + cycle + BODY.replace("        return", call + "        return")
    code, findings, errors = told({"cycle.py": text})
    assert (code, errors) == (1, {})
    assert f"cycle.py:{text.count(chr(10))}" in findings


# -- the file system ---------------------------------------------------------------------------------------------------

links = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")


@links
def test_a_loop_of_links(told, tmp_path):
    (tmp_path / "pkg").mkdir()
    os.symlink(tmp_path / "pkg", tmp_path / "pkg/again")
    os.symlink(tmp_path / "pkg/one", tmp_path / "pkg/two")
    os.symlink(tmp_path / "pkg/two", tmp_path / "pkg/one")
    code, findings, errors = told({"pkg/__init__.py": "", "pkg/good.py": GOOD})
    assert (code, findings, errors) == (1, ["pkg/good.py:8"], {})


@links
def test_links_that_lead_nowhere(told, tmp_path):
    os.symlink(tmp_path / "missing.py", tmp_path / "dangling.py")
    os.symlink(tmp_path / "self.py", tmp_path / "self.py")
    _, findings, errors = told({"good.py": GOOD})
    assert findings == ["good.py:8"]
    assert errors.keys() <= {"dangling.py", "self.py"}


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "geteuid"), reason="rights are other there")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_may_not_be_read(told, tmp_path, what, monkeypatch):
    (tmp_path / "shut").mkdir()
    shut = tmp_path / "shut/in.py"
    shut.write_text(GOOD)
    target = shut if what == "file" else tmp_path / "shut"
    if os.geteuid() == 0:  # root may read everything: let the system calls refuse
        import builtins

        def refuse(real):
            def refusing(path, *args, **kwargs):
                if isinstance(path, (str, os.PathLike)) and os.path.abspath(path) == str(target):
                    raise PermissionError(13, "Permission denied", str(path))
                return real(path, *args, **kwargs)

            return refusing

        monkeypatch.setattr(builtins, "open", refuse(open))
        monkeypatch.setattr(os, "open", refuse(os.open))
        monkeypatch.setattr(os, "scandir", refuse(os.scandir))
        monkeypatch.setattr(os, "listdir", refuse(os.listdir))
    else:
        target.chmod(0)
    try:
        code, findings, errors = told({"good.py": GOOD})
    finally:
        target.chmod(0o700)
    assert (code, findings) == (2, ["good.py:8"])
    assert list(errors) == [os.path.relpath(target, tmp_path)]


def test_a_folder_named_like_a_module(told, tmp_path):
    (tmp_path / "pkg.py").mkdir()
    code, findings, errors = told({"pkg.py/good.py": GOOD})
    assert (code, findings, errors) == (1, ["pkg.py/good.py:8"], {})


def test_strange_names(told):
    files = {"a b.py": GOOD, "ünï.py": GOOD, "1.py": GOOD, "class.py": GOOD, "x-y/z.py": GOOD, "-v.py": GOOD}
    code, findings, errors = told(files)
    assert (code, errors) == (1, {})
    assert sorted(findings) == sorted(f"{name}:8" for name in files)


def test_a_broken_file_that_others_import(told):
    model = GOOD.replace("\n\nclass", "\nfrom broken import f\nimport broken\n\nclass").replace("x.sum()", "f(x.sum())")
    code, findings, errors = told({"broken.py": "def f(:\n", "model.py": model, "good.py": GOOD})
    assert code == 2
    assert list(errors) == ["broken.py"]
    assert "good.py:8" in findings


def test_nothing_is_executed(told, tmp_path):
    trap = f"open({str(tmp_path / 'trap')!r}, 'w')\nraise SystemExit(3)\n"
    files = {
        "pkg/__init__.py": trap,
        "pkg/model.py": trap + GOOD,
        "conftest.py": trap,
        "setup.py": trap,
        "sitecustomize.py": trap,
        "torch.py": trap,
        "cgsafe.py": trap,
    }
    told(files)
    assert not (tmp_path / "trap").exists()
