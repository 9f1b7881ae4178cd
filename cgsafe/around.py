"""What code says about the files around it, for the memory of walks: see `cgsafe.walk.declared` and `cgsafe.recall`.

Which names stand for values on the host in a file depends on its neighbours. A record that rests on anything in a file
rests on these names, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cgsafe.index.project import File
from cgsafe.walk.declared import near_imports, own_fields
from cgsafe.walk.walker import Walker


class Around:
    """Answers what the files of a project declare, and what that rests on."""

    def __init__(self, make: Callable[[], Walker]):
        self._make = make
        self._walker: Walker | None = None

    @property
    def walker(self) -> Walker:
        if self._walker is None:
            self._walker = self._make()
        return self._walker

    def tails(self) -> frozenset[str]:
        """The last parts of the names of modules that declare something."""
        every = {self._by(file) for file in self.walker.project.files.values()} - {()}
        return frozenset().union(*(self.walker.fields_declared(by).tails for by in every))

    def names(self) -> dict[str, tuple[str, ...]]:
        """The names declared around each file; files around which there are none are left out."""
        found = {}
        for path, file in self.walker.project.files.items():
            by = self._by(file)
            if by and (names := self.walker.declared_in(file, by)):
                found[path] = tuple(sorted(names))
        return found

    def print(self, file: File, lines: Sequence[str], tails: frozenset[str]) -> Any:
        """What of a file others' names, or its own, may rest on; None where that is nothing."""
        by = self._by(file)
        if not by:
            return None
        imports = file.raw["imports"].values()
        own = own_fields("\n".join(lines[:]), *by) if any(a == by[0] for _, a, _ in imports) else {}
        return sorted(own.items()), sorted(near_imports(self.walker.project, file, tails))

    def _by(self, file: File) -> tuple[str, ...]:
        return self.walker.by_package.around(file.module).declared_by
