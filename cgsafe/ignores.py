"""What a walk over folders leaves out: .gitignore files, the user's own patterns, folders without sources."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

# Folders that hold no code of the project, wherever they are.
SKIPPED_FOLDERS = frozenset(
    {
        ".bzr",
        ".direnv",
        ".eggs",
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".pytype",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "__pypackages__",
        "node_modules",
        "venv",
    }
)

# Folders that hold copies of the code if they lie beside a project file, and may be real packages elsewhere.
BUILD_FOLDERS = frozenset({"build", "dist", "_build"})
BUILD_MARKERS = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})


def slashed(path: str) -> str:
    """The path with forward slashes, which is how patterns are written."""
    return path if os.sep == "/" else path.replace(os.sep, "/")


class GitIgnores:
    """The .gitignore files that are in force in one folder, outermost first. Immutable: `entering` gives a new one."""

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[tuple[int, GitIgnoreSpec], ...] = ()) -> None:
        self._layers = layers

    def entering(self, folder: str, text: str) -> GitIgnores:
        """The state inside `folder` (absolute), whose .gitignore holds `text`."""
        spec = _lenient_spec(text.splitlines())
        base = len(folder if folder.endswith(os.sep) else folder + os.sep)
        return GitIgnores((*self._layers, (base, spec))) if len(spec) else self

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether `path` (absolute) is ignored; as in git, the innermost file that has an opinion decides."""
        for base, spec in reversed(self._layers):
            relative = slashed(path[base:])
            verdict = spec.check_file(relative + "/" if is_folder else relative).include
            if verdict is not None:
                return verdict
        return False


def _lenient_spec(lines: list[str]) -> GitIgnoreSpec:
    """A spec of all valid lines: git itself passes over what it cannot read, so one bad line must not cost the rest."""
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return GitIgnoreSpec.from_lines([line for line in lines if _valid(line)])


def _valid(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


class Excludes:
    """The user's patterns, in the language of .gitignore and relative to the working directory.

    A pattern with a slash in it names a place below the working directory (or above it: `../other/gen`), one without
    matches at any depth below the working directory and below each of the given folders, so that `--exclude tests`
    means the same whether the checked tree lies here or elsewhere. Folders above those never match: a project that
    itself lives in a folder called `tests` is not excluded by that name.
    """

    def __init__(self, patterns: Iterable[str], folders: Iterable[str] = ()) -> None:
        """`folders` are the given ones, absolute. Raises ValueError for a pattern that means nothing."""
        working = os.getcwd()
        bases = [working]
        for folder in folders:
            if folder not in bases and not _below(folder, working):
                bases.append(folder)
        lines = [line for pattern in patterns for line in _absolute(pattern, working, bases)]
        self._spec: GitIgnoreSpec | None = None
        if lines:
            from pathspec import GitIgnoreSpec

            self._spec = GitIgnoreSpec.from_lines(lines)

    def match(self, path: str, is_folder: bool) -> bool:
        """Whether `path` (absolute) is excluded."""
        if self._spec is None:
            return False
        relative = slashed(path).lstrip("/")
        return self._spec.match_file(relative + "/" if is_folder else relative)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _absolute(pattern: str, working: str, bases: list[str]) -> list[str]:
    """The pattern as gitignore lines that are anchored at the root of the file system."""
    stripped = slashed(pattern).strip()
    if not stripped:
        return []
    negation, stripped = ("!", stripped[1:]) if stripped.startswith("!") else ("", stripped)
    folder_only = "/" if stripped.endswith("/") else ""
    body = stripped.rstrip("/")
    if not body:
        raise ValueError(f"`{pattern}` matches nothing")
    if "/" not in body and body not in (".", ".."):
        return [f"{negation}{_escaped(base)}/**/{body}{folder_only}" for base in bases]
    absolute = os.path.normpath(body)
    home = next((base for base in bases if body.startswith("/") and _below(absolute, base)), None)
    if home is not None:
        anchored = _escaped(home) + absolute[len(slashed(home).rstrip("/")) :]  # written as an absolute path
    else:
        parts = body.lstrip("/").split("/")
        base = working
        while parts and parts[0] in (".", ".."):
            base = os.path.dirname(base) if parts.pop(0) == ".." else base
        anchored = "/".join([_escaped(base), *parts])
    return [f"{negation}{anchored}{folder_only}"]


def _escaped(folder: str) -> str:
    """A folder as the start of a pattern that matches just this folder."""
    return "".join("\\" + c if c in "\\*?[]!# " else c for c in slashed(folder).rstrip("/"))
