"""Modules that captured code does not run.

Those who make them run them in functions that a profile calls eager, or make them in code that only other devices run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Any

from cgsafe.roots import folder_refusal
from cgsafe.walk.branches import never_runs
from cgsafe.walk.defs import ClassDef, FunctionDef
from cgsafe.walk.walker import Walker

MAX_DEPTH = 8
Place = tuple[str, str]  # path and qualified name of a class


class Owners:
    """Answers who makes the objects of a class, and whether all of them run it outside of graphs, or none makes it.

    The evidence is twofold: no captured code was seen to reach the class, and each class that makes it has a function
    that runs eagerly by profile, makes it in a branch that is never taken where graphs are captured, or is itself no
    part of what is captured.
    """

    def __init__(self, walker: Walker, reached: Collection[Place]):
        self.walker = walker
        self.reached = reached  # modules that other modules call
        self._eager: dict[ClassDef, str] = {}
        self._makers: dict[ClassDef, list[ClassDef] | None] = {}
        self._unmade: dict[ClassDef, bool] = {}
        self._callers: dict[str, list[str]] | None = None
        self._apart: Walker | None = None  # for questions that the walk did not ask

    def keep_out(self, definition: ClassDef) -> str:
        """Why a class whose forward counts as captured seems to be no part of what is; "" where nothing says so."""
        eager = self.run_eagerly(definition)
        if eager:
            return f"{eager} seems to run `{definition.name}`, outside of graphs"
        if self.never_made(definition):
            return f"only code that does not run there makes `{definition.name}`"
        return ""

    def never_made(self, definition: ClassDef, depth: int = 0) -> bool:
        """True where all that names a class stands in branches that are never taken, or in classes that are never made."""
        known = self._unmade.get(definition)
        if known is None:
            self._unmade[definition] = False  # a class that makes itself proves nothing
            if depth <= MAX_DEPTH and (definition.file.path, definition.qualname) not in self.reached:
                self._unmade[definition] = self._never_made(definition, depth)
            known = self._unmade[definition]
        return known

    def _never_made(self, definition: ClassDef, depth: int) -> bool:
        files = self.walker.project.files
        seen = False
        first = self._calling().get(definition.name, [])
        for path in dict.fromkeys([*first, *sorted(files)]) if first else ():
            for line in self._mentions(files[path], definition):
                if not self._is_left_out(files[path], line, definition, depth):
                    return False
                seen = True
        return seen

    def _calling(self) -> dict[str, list[str]]:
        """Name -> the files in which modules call it, of all capitalised names."""
        if self._callers is None:
            self._callers = {}
            for path, file in sorted(self.walker.project.files.items()):
                for name in file.index["instantiates"]:
                    self._callers.setdefault(name, []).append(path)
        return self._callers

    def _is_left_out(self, file: Any, line: int, definition: ClassDef, depth: int) -> bool:
        """True where a line of a class that names another never runs."""
        holder = _class_at(file, line)
        if holder is None:
            return False
        self._apart = self._apart or self.walker.apart()
        maker = self.walker.definitions.class_(file, holder)
        return never_runs(self._apart, file.path, holder, line) or self.never_made(maker, depth + 1)

    def _mentions(self, file: Any, definition: ClassDef) -> list[int]:
        """The lines of a file that make something of a name that a class has."""
        name = definition.name
        if folder_refusal(self.walker, file):
            return []
        text = "\n".join(self.walker.lines(file))
        if name not in text or not re.search(rf"\b{re.escape(name)}\b", text):
            return []
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return [0]
        first, _, last = file.index["classes"][definition.qualname]["lines"] if file is definition.file else (0, 0, 0)
        asked = {id(n) for question in ast.walk(tree) for part in _only_asked(question) for n in ast.walk(part)}
        lines = [getattr(n, "lineno", 0) for n in ast.walk(tree) if _names(n, name) and id(n) not in asked]
        return [line for line in lines if not first <= line <= last]

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


def _names(node: ast.AST, name: str) -> bool:
    """True for a use of a class by its name, and for an import that gives it another."""
    if isinstance(node, ast.alias):
        return node.name == name and node.asname not in (None, name)
    return getattr(node, "id", "") == name or (isinstance(node, ast.Attribute) and node.attr == name)


def _only_asked(node: ast.AST) -> list[ast.expr]:
    """Annotations, and what `isinstance` and its like are given: they make nothing."""
    if isinstance(node, ast.Call):
        asks = isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass", "super")
        return node.args if asks else []
    kept = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    return [part for part in kept if isinstance(part, ast.expr)]
