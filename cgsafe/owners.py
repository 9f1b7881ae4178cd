"""Modules that captured code does not run: those who make them run them in functions that a profile calls eager."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from cgsafe.walk.defs import ClassDef, FunctionDef
from cgsafe.walk.walker import Walker

MAX_DEPTH = 8
Place = tuple[str, str]  # path and qualified name of a class


class Owners:
    """Answers who makes the objects of a class, and whether all of them run it outside of graphs.

    The evidence is twofold: no captured code was seen to reach the class, and each class that makes it has a function
    that runs eagerly by profile, or is itself no part of what is captured.
    """

    def __init__(self, walker: Walker, reached: Collection[Place]):
        self.walker = walker
        self.reached = reached  # modules that other modules call
        self._eager: dict[ClassDef, str] = {}
        self._makers: dict[ClassDef, list[ClassDef] | None] = {}

    def run_eagerly(self, definition: ClassDef, depth: int = 0) -> str:
        """The eager function that runs a class's forward, or the habit that keeps its owner out; "" where none is seen."""
        known = self._eager.get(definition)
        if known is None:
            self._eager[definition] = ""  # a class that makes itself proves nothing
            known = self._eager[definition] = self._run_eagerly(definition, depth)
        return known

    def _run_eagerly(self, definition: ClassDef, depth: int) -> str:
        tables = self.walker.by_package.around(definition.file.module)
        if not tables.eager or depth > MAX_DEPTH or (definition.file.path, definition.qualname) in self.reached:
            return ""
        makers = self.makers(definition)
        if not makers:
            return ""
        found = [self._keeps_out(maker, depth) for maker in makers]
        return min(found) if all(found) else ""

    def _keeps_out(self, maker: ClassDef, depth: int) -> str:
        tables = self.walker.by_package.around(maker.file.module)
        eager = sorted(name for name in tables.eager if self.walker.classes.find(maker, name) is not None)
        if eager:
            return f"`{maker.name}.{eager[0]}`"
        if tables.not_captured_by(maker.file.module, maker.name):
            return f"`{maker.name}`"
        return self.run_eagerly(maker, depth + 1)

    def makers(self, definition: ClassDef) -> list[ClassDef] | None:
        """The classes in whose text an object of the class is made; None where others make it, too."""
        if definition not in self._makers:
            self._makers[definition] = self._find_makers(definition)
        return self._makers[definition]

    def _find_makers(self, definition: ClassDef) -> list[ClassDef] | None:
        found: list[ClassDef] = []
        project = self.walker.project
        holders = {definition.file.path: definition.file}
        holders |= {file.path: file for file, _ in project.importers(definition.name)}
        for _, file in sorted(holders.items()):
            local = self._local_name(file, definition)
            if not local:
                continue
            made = re.compile(rf"(?<![\w.]){re.escape(local)}(?:\.(\w+))?\(")
            for number, text in enumerate(self.walker.text(file).lines, 1):
                if local not in text or text.lstrip().startswith(("#", "class ")):
                    continue
                if not any(not call[1] or self._makes(definition, call[1]) for call in made.finditer(text)):
                    continue
                holder = _class_at(file, number)
                if holder is None:
                    return None
                maker = self.walker.definitions.class_(file, holder)
                if maker is not definition and maker not in found:
                    found.append(maker)
        for below in self.walker.classes.subclasses(definition):
            more = self.makers(below) if below is not definition else []
            if more is None:
                return None
            found.extend(m for m in more if m not in found)
        return found

    def _makes(self, definition: ClassDef, name: str, depth: int = 0) -> bool:
        """False for a function of the class that is seen to make no object of it: it only answers something."""
        found = self.walker.classes.find(definition, name)
        if found is None or not isinstance(found[1], FunctionDef) or depth > MAX_DEPTH:
            return True
        function = found[1]
        lines = self.walker.text(function.file).lines[function.line - 1 : function.last]
        body = "\n".join(lines).partition(":")[2]
        if re.search(r"(?<![\w.])super\b", body):
            return True
        uses = re.finditer(rf"(?<![\w.])(?:cls|{re.escape(definition.name)})\b(?:\.(\w+))?", body)
        return any(not use[1] or self._makes(definition, use[1], depth + 1) for use in uses)

    def _local_name(self, file: Any, definition: ClassDef) -> str:
        """What a file calls the class; "" where it does not know it."""
        if file is definition.file:
            return definition.name
        for local, (module, attribute, level) in file.index["imports"].items():
            if attribute == definition.name:
                target = self.walker.project.find_module(self.walker.project.absolute(file, module, level), file)
                if target is definition.file:
                    return str(local)
        return ""


def _class_at(file: Any, line: int) -> str | None:
    """The outermost class around a line."""
    for qualified, info in file.index["classes"].items():
        first, _, last = info["lines"]
        if "." not in qualified and first <= line <= last:
            return str(qualified)
    return None
