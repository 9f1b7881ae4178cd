"""Fields that the checked code itself declares to stay on the host, by a call that a profile names.

`image_grid_thw=MultiModalFieldConfig.batched("image", keep_on_cpu=True)` says where a value is that later code takes from a
dict by that name. A file believes what it declares itself, then what the files around it declare: those that it imports, and
those that import it. Only where none of these declares anything does every declaration count that no other contradicts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from cgsafe.index.project import File, Project

MAX_NAME = 200  # characters before a call in which the name that it is bound to stands
_NAMED = re.compile(r"""(?:["'](\w+)["'](?:\s*:|\]\s*=)|\b(\w+)\s*=)\s*\Z""")
_GIVEN = re.compile(r"(?:\.\w+)?\(((?:[^()]|\([^()]*\))*)\)")  # at most one level of calls among the arguments


def own_fields(text: str, call: str, flag: str) -> dict[str, bool]:
    """The fields that a text declares by a call: name -> whether all declarations of it have the flag."""
    fields: dict[str, bool] = {}
    at = text.find(call)
    while at >= 0:
        named = _NAMED.search(text[max(0, at - MAX_NAME) : at])
        given = _GIVEN.match(text, at + len(call))
        if named is not None and given is not None:
            name = named[1] or named[2]
            fields[name] = fields.get(name, True) and flag in given[1]
        at = text.find(call, at + 1)
    return fields


class DeclaredFields:
    """Answers which names hold what was declared to stay on the host."""

    def __init__(self, project: Project, read: Callable[[str], str], call: str, flag: str):
        self._project = project
        self._own: dict[str, dict[str, bool]] = {}
        for file, _ in project.importers(call):
            if fields := own_fields(read(file.path), call, flag):
                self._own[file.path] = fields
        self.tails = frozenset(project.files[path].module.rpartition(".")[2] for path in self._own)
        self._near: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._around: dict[str, set[str]] = {}
        for path in self._own:
            for target in self._imported(project.files[path]):
                self._around.setdefault(target, set()).add(path)
        self._anywhere = self._agreed(sorted(self._own))

    def names(self, file: File) -> frozenset[str]:
        """The names that stand for a value on the host in a file."""
        own = self._own.get(file.path)
        if own is not None:
            around = self._agreed([file.path])
            return around | {n for n in self._agreed(self._neighbours(file)) if n not in own and not _tail(n, own)}
        near = self._neighbours(file)
        return self._agreed(near) if near else self._anywhere

    def _neighbours(self, file: File) -> list[str]:
        imported, beside = self._near_imports(file)
        # A model that extends another one of the same folder takes over its fields, which may be those of a third.
        more = [self._near_imports(self._project.files[path])[0] for path in sorted(beside)]
        return sorted(imported.union(self._around.get(file.path, ()), *more) - {file.path})

    def _near_imports(self, file: File) -> tuple[frozenset[str], frozenset[str]]:
        """The files that a file imports: those that declare something, and those of its folder."""
        found = self._near.get(file.path)
        if found is None:
            folder = os.path.dirname(file.path)
            targets = {self._project.find_module(name, file) for name in near_imports(self._project, file, self.tails)}
            paths = {target.path for target in targets if target is not None}
            beside = frozenset(p for p in paths if os.path.dirname(p) == folder)
            found = self._near[file.path] = (frozenset(p for p in paths if p in self._own), beside)
        return found

    def _imported(self, file: File) -> set[str]:
        """All files that a file imports."""
        found = set()
        for module, _, level in file.raw["imports"].values():
            target = self._project.find_module(self._project.absolute(file, module, level), file)
            if target is not None:
                found.add(target.path)
        return found

    def _agreed(self, paths: list[str]) -> frozenset[str]:
        """The names that all of some files that declare them keep on the host, and the ends of these names."""
        said: dict[str, bool] = {}
        for path in paths:
            for name, host in self._own[path].items():
                for part in (name, *_ends(name)):
                    said[part] = said.get(part, True) and host
        return frozenset(name for name, host in said.items() if host)


def near_imports(project: Project, file: File, tails: frozenset[str]) -> set[str]:
    """The absolute names of the modules that a file imports from its folder, or that end like one that declares something."""
    package = file.module if file.package else file.module.rpartition(".")[0]
    found = set()
    for module, _, level in file.raw["imports"].values():
        name = project.absolute(file, module, level)
        parent, _, last = name.rpartition(".")
        if last in tails or not parent or package in (parent, name):
            found.add(name)
    return found


def _ends(name: str) -> list[str]:
    """`grid_thw` of `image_grid_thw`: what code that serves several kinds of input calls all of them."""
    words = name.split("_")
    ends = ["_".join(words[n:]) for n in range(len(words) - 1)]
    return [*ends[1:], *(end[:-1] for end in ends if end.endswith("s"))]  # and one of several `grid_thws`


def _tail(name: str, fields: dict[str, Any]) -> bool:
    return any(name in _ends(field) for field in fields)
