"""The whole tree: which file is which module, and what a name in a module stands for."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from cgsafe.index.trail import TRAIL, Cell

# Packages that checked code means when it names them, whatever lies around.
_OTHERS = frozenset((*sys.stdlib_module_names, "torch", "numpy", "triton"))


class Entity(NamedTuple):
    """What a name stands for. kind: "function", "class", "name", "module" or "external"."""

    kind: str
    file: File | None
    name: str  # the qualified name inside the file; for modules and externals the dotted name


class File:
    """One known file with its index.

    `index` notes that the whole file was looked at; `raw` is for those who note more exactly what they looked at.
    """

    __slots__ = ("digest", "import_root", "module", "package", "path", "raw", "reported")

    def __init__(self, path: str, module: str, package: bool, import_root: str, digest: str, index: dict[str, Any]):
        self.path = path
        self.module = module
        self.package = package
        self.import_root = import_root
        self.digest = digest
        self.raw = index
        self.reported = False

    @property
    def index(self) -> dict[str, Any]:
        TRAIL.deps.add(("t", self.path))
        return self.raw

    def __repr__(self) -> str:
        return f"File({self.module})"


class Project:
    """All known files, and name resolution over them.

    Modules are looked up below each import root; a file beside the asking one is found too, as it is when that
    one runs as a script.
    """

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.modules: dict[tuple[str, str], File] = {}  # (import root, dotted name)
        self.roots: list[str] = []
        self._prefixes: set[tuple[str, str]] = set()
        self._resolved: dict[tuple[str, str], Entity | None] = {}
        self._cells: dict[tuple[str, str], Cell] = {}  # what those rest on
        self._resolving: list[tuple[str, str]] = []
        self._cut: set[tuple[str, str]] = set()
        self._importers: dict[str, list[tuple[File, str]]] | None = None
        self._decorated: dict[str, list[tuple[File, str, str]]] | None = None

    def importers(self, name: str) -> list[tuple[File, str]]:
        """The files that import something of that name at their top, and what they call it; in the order of paths."""
        TRAIL.deps.add(("w", "imported", name))
        if self._importers is None:
            self._importers = {}
            for path in sorted(self.files):
                file = self.files[path]
                for local, (_, attribute, _) in file.raw["imports"].items():
                    if attribute is not None:
                        self._importers.setdefault(attribute, []).append((file, local))
        return self._importers.get(name, [])

    def decorated(self, name: str) -> list[tuple[File, str, str]]:
        """What stands under a decorator whose last part is `name`: (file, "functions" or "classes", qualified name).

        In the order of paths; methods are left out.
        """
        TRAIL.deps.add(("w", "decorated", name))
        if self._decorated is None:
            self._decorated = {}
            for path in sorted(self.files):
                file = self.files[path]
                found = [("functions", q, e[4]) for q, e in file.raw["functions"].items() if e[4] and not e[3]]
                found += [("classes", q, i["decorators"]) for q, i in file.raw["classes"].items() if i["decorators"]]
                for kind, qualified, decorators in found:
                    for last in dict.fromkeys(d.rpartition(".")[2] for d in decorators):
                        self._decorated.setdefault(last, []).append((file, kind, qualified))
        return self._decorated.get(name, [])

    def add(self, file: File) -> None:
        self._importers = self._decorated = None
        self.files[file.path] = file
        self.modules[(file.import_root, file.module)] = file
        if file.import_root not in self.roots:
            self.roots.append(file.import_root)
            self.roots.sort()
        name = file.module
        while name:
            self._prefixes.add((file.import_root, name))
            name = name.rpartition(".")[0]

    def find_module(self, name: str, asking: File | None = None) -> File | None:
        """The file of a module by absolute dotted name."""
        TRAIL.deps.add(("m", name))
        top = name.partition(".")[0]
        if top in _OTHERS and (asking is None or asking.module.partition(".")[0] != top):
            return None  # a stray `torch.py` or a stub in some folder is not what runs
        if asking is not None:
            found = self.modules.get((asking.import_root, name))
            if found is not None:
                return found
            beside = asking.module.rpartition(".")[0]
            if beside and not asking.package:  # run as a script, its folder is on the path
                found = self.modules.get((asking.import_root, f"{beside}.{name}"))
                if found is not None and not self._is_package(asking.import_root, beside):
                    return found
        for root in self.roots:
            found = self.modules.get((root, name))
            if found is not None:
                return found
        return None

    def _is_package(self, root: str, name: str) -> bool:
        file = self.modules.get((root, name))
        return file is not None and file.package

    def is_namespace(self, name: str, asking: File) -> bool:
        """True where `name` is a folder of known modules without a file of its own."""
        TRAIL.deps.add(("m", name))
        return (asking.import_root, name) in self._prefixes

    def absolute(self, file: File, module: str, level: int) -> str:
        """The absolute name of a module imported from `file` with `level` leading dots."""
        if level == 0:
            return module
        parts = file.module.split(".")
        if not file.package:
            parts = parts[:-1]
        parts = parts[: len(parts) - (level - 1)] if level > 1 else parts
        return ".".join([*parts, module] if module else parts)

    def resolve(self, file: File, name: str) -> Entity | None:
        """What the plain name `name` stands for at module level of `file`; None where it is not defined there."""
        key = (file.path, name)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell()
        if key in self._resolved:
            TRAIL.deps.add(cell)
            return self._resolved[key]
        if key in self._resolving:
            TRAIL.deps.add(cell)
            self._cut.update(self._resolving)  # a cycle of re-exports ends here: what these lack, others may find yet
            return None
        self._resolving.append(key)
        with cell:
            found = self._resolve(file, name)
        self._resolving.pop()
        if found is not None or key not in self._cut:
            self._resolved[key] = found
        if not self._resolving:
            self._cut.clear()
        return found

    def _resolve(self, file: File, name: str) -> Entity | None:
        index = file.raw
        TRAIL.deps.add(("r", file.path, name))
        if name in index["functions"]:
            return Entity("function", file, name)
        if name in index["classes"]:
            return Entity("class", file, name)
        if name in index["names"]:
            return Entity("name", file, name)
        imported = index["imports"].get(name)
        if imported is not None:
            module, attribute, level = imported
            absolute = self.absolute(file, module, level)
            if attribute is None:
                return self.module_entity(absolute, file)
            return self.member(absolute, attribute, file)
        for module, level in index["stars"]:
            absolute = self.absolute(file, module, level)
            target = self.find_module(absolute, file)
            if target is not None and target is not file:
                found = self.resolve(target, name)
                if found is not None:
                    return found
        return None

    def module_entity(self, name: str, asking: File) -> Entity:
        target = self.find_module(name, asking)
        if target is not None:
            return Entity("module", target, target.module)
        if self.is_namespace(name, asking):
            return Entity("module", None, name)
        return Entity("external", None, name)

    def member(self, module: str, attribute: str, asking: File) -> Entity | None:
        """What `attribute` of the module named `module` stands for."""
        target = self.find_module(module, asking)
        if target is None:
            if self.is_namespace(module, asking):
                return self.module_entity(f"{module}.{attribute}", asking)
            return Entity("external", None, f"{module}.{attribute}" if module else attribute)
        found = self.resolve(target, attribute)
        if found is not None:
            return found
        submodule = self.find_module(f"{target.module}.{attribute}", target)
        if submodule is not None:
            return Entity("module", submodule, submodule.module)
        if self.is_namespace(f"{target.module}.{attribute}", target):
            return Entity("module", None, f"{target.module}.{attribute}")
        return None


def module_name(path: str, import_root: str) -> tuple[str, bool]:
    """The dotted module name of a file below its import root, and whether it is a package's `__init__`."""
    inside = import_root + os.sep
    relative = path[len(inside) :] if path.startswith(inside) else os.path.relpath(path, import_root)
    stem = relative[:-3] if relative.endswith(".py") else relative
    parts = stem.replace(os.sep, "/").split("/")
    package = parts[-1] == "__init__"
    if package and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts), package
