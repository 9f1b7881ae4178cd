"""What lies around the checked code must not change what is said of it, nor run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HAZARD = """
    import torch
    from torch import nn

    class M(nn.Module):
        def forward(self, x: torch.Tensor):
            return x.sum().item()
"""


@pytest.mark.parametrize("stray", ["scripts/torch.py", "tests/stubs/torch/__init__.py", "pkg/torch.py", "typing.py"])
def test_a_stray_module_of_a_known_name(check, stray) -> None:
    report = check({"pyproject.toml": "", "pkg/__init__.py": "", "pkg/m.py": HAZARD, stray: "x = 1\n"})
    assert [(f.path, f.code) for f in report.findings] == [("pkg/m.py", "CG102")]


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_star_imports_in_a_circle(check, names) -> None:
    """Whoever asks first, a name that comes from behind the circle is found."""
    first, second = names
    model = "import torch\nfrom torch import nn\nfrom .{} import g\nclass M(nn.Module):\n    def forward(self, x: torch.Tensor):\n"
    report = check(
        {
            "p/__init__.py": "",
            "p/a.py": "from .b import *\n",
            "p/b.py": "from .a import *\nfrom .c import *\n",
            "p/c.py": "def g(t):\n    return t.item()\n",
            "p/m0.py": model.format(first) + "        return g(1)\n",
            "p/m1.py": model.format(second) + "        return g(x)\n",
        }
    )
    assert [(f.path, f.line, f.root.path) for f in report.findings] == [("p/c.py", 2, "p/m1.py")]


def test_the_module_form_imports_nothing_from_the_folder(write) -> None:
    folder = write(
        {
            "click.py": "raise SystemExit('click.py ran')\n",
            "evil.py": "raise SystemExit('evil.py ran')\n",
            "evil-1.dist-info/entry_points.txt": "[cgsafe.rules]\nx = evil:rules\n",
            "evil-1.dist-info/METADATA": "Name: evil\nVersion: 1\n",
            "m.py": HAZARD,
        }
    )
    command = [sys.executable, "-m", "cgsafe", "check", "m.py", "--output-format", "concise", "--no-cache"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith("m.py:6:")


def test_a_full_disk_is_told(write) -> None:
    folder = write({"m.py": HAZARD})
    command = [sys.executable, "-m", "cgsafe", "check", "m.py", "--no-cache"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


COMMANDS = [["check", "m.py", "-q"], ["check", "--nope"], ["check", "--baseline", "."], ["--help"], ["rules"]]
CODES = [1, 2, 2, 0, 0]


@pytest.mark.parametrize(("arguments", "code"), list(zip(COMMANDS, CODES, strict=True)))
def test_a_reader_that_has_gone_away_does_not_change_the_exit_code(write, arguments, code) -> None:
    folder = write({"m.py": HAZARD})
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "cgsafe", *arguments]
    try:
        assert subprocess.run(command, cwd=folder, stdout=writing, stderr=writing).returncode == code
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        ("check m.py >&-", 2),
        ("check m.py >&- 2>&-", 2),
        ("check m.py 2>&-", 1),
        ("check - <&-", 2),
        ("--help >&-", 2),
        ("check --nope 2>/dev/full", 2),
    ],
)
def test_closed_and_full_streams(write, redirection, code) -> None:
    folder = write({"m.py": HAZARD})
    command = ["sh", "-c", f'"$0" -m cgsafe {redirection}', sys.executable]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)


def test_a_working_directory_that_is_gone(write, tmp_path) -> None:
    write({"gone/x.txt": ""})
    command = ["sh", "-c", 'cd gone && rm x.txt && rmdir ../gone && "$0" -m cgsafe check .', sys.executable]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (2, "cgsafe: the working directory does not exist any more\n")


def test_an_interrupt_while_the_command_is_still_being_imported() -> None:
    code = (
        "import builtins, cgsafe.__main__ as m\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'cgsafe.cli':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "real, builtins.__import__ = builtins.__import__, interrupted\n"
        "m.start()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, "")


PROGRAMS = {
    "an attribute that a method called before has set": """
        def forward(self, x: torch.Tensor):
            self.go(x)
            if self.z:  # expect: CG101
                return x

        def go(self, t):
            self.z = t.any()
    """,
    "a default of a nested function": """
        def forward(self, x: torch.Tensor):
            def f(y=x):
                return y.item()  # expect: CG102
            return f()
    """,
    "a default of a lambda": """
        def forward(self, x: torch.Tensor):
            k = x.sum()
            f = lambda y=k: y.item()  # expect: CG102
            return f()
    """,
    "a walrus in a comprehension": """
        def forward(self, x: torch.Tensor):
            [y := x for _ in range(3)]
            if y.sum() > 0:  # expect: CG101
                return x
    """,
    "what is unknown is passed on": """
        def forward(self, cfg):
            return self.inner(cfg.thing)

        def inner(self, hidden_states):
            if hidden_states.sum() > 0:  # expect: CG101
                return hidden_states
    """,
    "code for type checkers": """
        def forward(self, x: torch.Tensor):
            if TYPE_CHECKING:
                return x.item()
            return x
    """,
    "a product with a tuple": """
        def forward(self, x: torch.Tensor, xs: tuple):
            return x * xs
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(check, name) -> None:
    import textwrap

    from expectations import verify

    head = "from typing import TYPE_CHECKING\nimport torch\nfrom torch import nn\n\nclass M(nn.Module):\n"
    verify(check, {"m.py": head + textwrap.indent(textwrap.dedent(PROGRAMS[name]).strip("\n"), "    ") + "\n"})


def test_mutual_recursion_of_many_functions_ends(check) -> None:
    names = range(14)
    body = "".join(
        f"def f{i}(x, n):\n" + "".join(f"    if n == {j}: x = f{j}(x, n)\n" for j in names) + "    return x\n"
        for i in names
    )
    head = "import torch\nfrom torch import nn\n"
    model = "class M(nn.Module):\n    def forward(self, x: torch.Tensor, n: int):\n        return f0(x, n).item()\n"
    report = check({"m.py": head + body + model})
    assert [f.code for f in report.findings] == ["CG102"]
