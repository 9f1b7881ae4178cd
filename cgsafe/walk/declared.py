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


class DeclaredFields:
    """Answers which names hold what was declared to stay on the host."""

    def __init__(self, project: Project, read: Callable[[str], str], call: str, flag: str):
        self._project = project
        # A name, then a call with at most one level of calls among its arguments.
        pattern = re.compile(
            rf"""(?:["'](\w+)["'](?:\s*:|\]\s*=)|\b(\w+)\s*=)\s*{re.escape(call)}(?:\.\w+)?\(((?:[^()]|\([^()]*\))*)\)"""
        )
        self._own: dict[str, dict[str, bool]] = {}
        for file, _ in project.importers(call):
            fields = self._own.setdefault(file.path, {})
            for match in pattern.finditer(read(file.path)):
                name = match[1] or match[2]
                fields[name] = fields.get(name, True) and flag in match[3]
        self._own = {path: fields for path, fields in self._own.items() if fields}
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
        imported = self._imported(file)
        folder = os.path.dirname(file.path)
        for path in sorted(imported):
            # A model that extends another one of the same folder takes over its fields, which may be those of a third.
            if os.path.dirname(path) == folder:
                imported |= {p for p in self._imported(self._project.files[path]) if p in self._own}
        return sorted(({p for p in imported if p in self._own} | self._around.get(file.path, set())) - {file.path})

    def _imported(self, file: File) -> set[str]:
        found = set()
        for module, _, level in file.index["imports"].values():
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


def _ends(name: str) -> list[str]:
    """`grid_thw` of `image_grid_thw`: what code that serves several kinds of input calls all of them."""
    words = name.split("_")
    ends = ["_".join(words[n:]) for n in range(len(words) - 1)]
    return [*ends[1:], *(end[:-1] for end in ends if end.endswith("s"))]  # and one of several `grid_thws`


def _tail(name: str, fields: dict[str, Any]) -> bool:
    return any(name in _ends(field) for field in fields)
