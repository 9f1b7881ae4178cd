"""Calls that lead into other modules, by every way of importing them."""

from __future__ import annotations

import pytest

from expectations import TORCH, cases, verify

HOT = TORCH + "\n\ndef hot(t):\n    return t.sum().item()  # expect: CG102\n"
MODEL = TORCH + "{imports}\n\nclass M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return {call}(x)\n"

ACROSS = {
    "from import": ("helper.py", "from helper import hot", "hot"),
    "from import as": ("helper.py", "from helper import hot as h", "h"),
    "module": ("helper.py", "import helper", "helper.hot"),
    "module as": ("helper.py", "import helper as u", "u.hot"),
    "package": ("pkg/sub/helper.py", "import pkg.sub.helper", "pkg.sub.helper.hot"),
    "from a package": ("pkg/sub/helper.py", "from pkg.sub import helper", "helper.hot"),
    "inside the function": ("helper.py", "", "__import__"),
}


@pytest.mark.parametrize("where", cases({k: v for k, v in ACROSS.items() if k != "inside the function"}))
def test_across_modules(check, where):
    path, imports, call = where
    files = {path: HOT, "model.py": MODEL.format(imports=imports, call=call)}
    if "/" in path:
        files |= {"pkg/__init__.py": "", "pkg/sub/__init__.py": ""}
    verify(check, files)


def test_relative_imports_and_re_exports(check):
    verify(
        check,
        {
            "pkg/__init__.py": "from .model import M",
            "pkg/utils/__init__.py": "from .deep import hot as warm\nfrom .other import *",
            "pkg/utils/deep.py": HOT,
            "pkg/utils/other.py": HOT.replace("hot", "also") + "\n\n__all__ = ['also']",
            "pkg/model.py": MODEL.format(imports="from .utils import also, warm", call="also(x) + warm"),
        },
    )


def test_an_import_inside_the_function(check):
    model = MODEL.format(imports="", call="hot").replace("return", "from helper import hot\n\n        return")
    verify(check, {"helper.py": HOT, "model.py": model})


def test_an_import_under_type_checking_only(check):
    program = """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from torch import nn

        if TYPE_CHECKING:
            from meta import Meta

        class M(nn.Module):
            def forward(self, meta: Meta):
                return meta.lengths.tolist()  # expect: CG102
        """
    meta = "import torch\n\nclass Meta:\n    lengths: torch.Tensor\n"
    verify(check, {"model.py": program, "meta.py": meta})


def test_a_cycle_of_imports(check):
    verify(
        check,
        {
            "a.py": TORCH + "import b\n\n\ndef hot(t):\n    return t.item()  # expect: CG102\n",
            "b.py": TORCH + "import a\n\n\ndef on(t):\n    return a.hot(t.sum())\n",
            "model.py": MODEL.format(imports="import b", call="b.on"),
        },
    )


def test_two_modules_of_one_name_are_told_apart(check):
    cold = "def hot(t):\n    return t\n"
    model = MODEL.format(imports="from .helper import hot", call="hot")
    files = {"one/helper.py": HOT, "two/helper.py": cold, "one/model.py": model, "two/model.py": model}
    verify(check, files | {"one/__init__.py": "", "two/__init__.py": ""})
