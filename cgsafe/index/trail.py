"""What an outcome rests on: every look at the checked code is noted where it is worked out.

`TRAIL.deps` is the set of what is being worked out at the moment. Whoever looks at something adds it: a leaf (a part of
the checked code, or a question to it, see `cgsafe.recall`), or a cell, which stands for all that its own outcome rests
on. Whatever is remembered in a table must be kept with its cell: a second asker rests on the same.

Leaves, all of which compare by value or by identity: a function (its text), a class (what its body says without the
bodies of its methods), and tuples, the first item of which tells the kind:

    ("t", path)             the whole text of a file
    ("r", path, name)       what a name is bound to at the top of a file
    ("q", path, kind, ...)  a question about a file, see `cgsafe.index.asked`
    ("w", kind, ...)        a question about all files
    ("m", name)             which module of that name there is
"""

from __future__ import annotations

from typing import Any

MANY = 40


class Cell:
    """Something that was worked out, and what that rests on."""

    __slots__ = ("deps", "open")

    def __init__(self) -> None:
        self.deps: Any = ()  # a tuple once it is complete: there are many, and most are small
        self.open = 0  # how often it is being worked out at the moment

    def __enter__(self) -> Cell:
        deps = TRAIL.deps
        deps.add(self)
        TRAIL.stack.append(deps)
        self.open += 1
        own = self.deps
        if own.__class__ is tuple:
            own = self.deps = set(own)
        TRAIL.deps = own
        return self

    def __exit__(self, *_: object) -> None:
        TRAIL.deps = TRAIL.stack.pop()
        self.open -= 1
        if not self.open and len(self.deps) <= MANY:
            self.deps = tuple(self.deps)


def settled(cell: Cell) -> Any:
    """What stands for a cell that is complete: the one thing that it rests on, where it is only one."""
    return cell.deps[0] if cell.deps.__class__ is tuple and len(cell.deps) == 1 else cell


class Trail:
    """The collector of what is being worked out."""

    __slots__ = ("deps", "stack")

    def __init__(self) -> None:
        self.deps: set[Any] = set()
        self.stack: list[set[Any]] = []  # of what surrounds that

    def add(self, what: Any) -> None:
        self.deps.add(what)


TRAIL = Trail()


class Memo(dict[Any, Any]):
    """A table of outcomes with their cells, for questions whose answers are kept at once.

    `table.of(key, work)` gives what `work()` gave the first time, and notes what that rests on each time.
    """

    __slots__ = ()

    def of(self, key: Any, work: Any) -> Any:
        found = self.get(key)
        if found is None:
            cell = Cell()
            with cell:
                value = work()
            found = self[key] = value, settled(cell)
        else:
            TRAIL.deps.add(found[1])
        return found[0]
