"""Which package and which project a file belongs to, told from the files around it; nothing is imported for that."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")

# So many folders without `__init__.py` may lie between a folder and the package that it still belongs to.
NAMESPACE_DEPTH = 4


@dataclass(frozen=True)
class Surroundings:
    """Where a folder belongs; absolute paths, "" where there is none."""

    import_root: str  # the folder that absolute imports start from
    package: str  # the top-most package folder around it, directly under the import root; "" for plain scripts
    project: (
        str  # the folder with the project's marker, else the import root; "" rather than a folder of all and sundry
    )


class Projects:
    """Answers for many files; remembers what it saw of each folder, so make a new one for each run.

    **Package.** Walk up from the file's folder as long as there is an `__init__.py`; the first folder without one is
    the import root. Large projects have model folders without `__init__.py` inside their packages (namespace packages),
    so up to four such folders are stepped over if a folder above them has an `__init__.py` (but not up to a project
    folder with a stray one: there `src/package` is the package). Plain scripts inside a package folder
    (`package/tools/run.py`) therefore count as part of the package; their sibling imports are found relative to their
    own folder, not to the import root.

    **Project.** The nearest folder, at or above the file's, with `pyproject.toml`, `setup.py`, `setup.cfg` or `.git`.
    Nothing above such a marker is looked at. The root of the file system, the folders for temporary files and the home
    folder (and whatever holds it) hold all and sundry, so they are never a project, marker or not.
    """

    def __init__(self) -> None:
        self._initialised: dict[str, bool] = {}
        self._marked: dict[str, bool] = {}
        self._known: dict[str, Surroundings] = {}
        self._common = common_folders()

    def around(self, folder: str) -> Surroundings:
        """The surroundings of an absolute folder."""
        if (known := self._known.get(folder)) is not None:
            return known
        package = self._package(folder)
        import_root = os.path.dirname(package) if package else folder
        project = self._project(folder) or ("" if import_root in self._common else import_root)
        result = Surroundings(import_root, package, project)
        self._known[folder] = result
        return result

    def has_marker(self, folder: str) -> bool:
        """Whether a project starts at this folder."""
        if folder not in self._marked:
            self._marked[folder] = any(os.path.exists(os.path.join(folder, name)) for name in MARKERS)
        return self._marked[folder]

    def is_common(self, folder: str) -> bool:
        """Whether the folder is one that holds all and sundry."""
        return folder in self._common

    def _has_init(self, folder: str) -> bool:
        if folder not in self._initialised:
            self._initialised[folder] = os.path.isfile(os.path.join(folder, "__init__.py"))
        return self._initialised[folder]

    def _package(self, folder: str) -> str:
        package, gap = "", 0
        for current in _upward(folder):
            if current in self._common or gap > NAMESPACE_DEPTH:
                break
            marked = self.has_marker(current)
            if not self._has_init(current):
                gap += 1
            elif not (marked and gap):
                package, gap = current, 0
            if marked:
                break
        return package

    def _project(self, folder: str) -> str:
        for current in _upward(folder):
            if current in self._common:
                return ""
            if self.has_marker(current):
                return current
        return ""


def _upward(folder: str) -> Iterable[str]:
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def common_folders() -> frozenset[str]:
    """Folders that are never a project: the root, the folders for temporary files, the home folder and its parents."""
    folders = {"/tmp", "/var/tmp", tempfile.gettempdir()}
    folders.update(_upward(os.path.abspath(os.path.expanduser("~"))))
    folders.update(os.path.realpath(folder) for folder in list(folders))
    folders.update(list(_upward(os.path.abspath(os.sep))))
    return frozenset(folders)


def package_root(path: str) -> str:
    """The import root of a file: the folder that the absolute imports of its package start from."""
    return Projects().around(os.path.dirname(os.path.abspath(path))).import_root


def project_folder(path: str) -> str:
    """The project folder around a file, else its import root; "" if that is one of `common_folders`."""
    return Projects().around(os.path.dirname(os.path.abspath(path))).project


def project_roots(files: Iterable[str]) -> dict[str, Surroundings]:
    """The surroundings of each file."""
    projects = Projects()
    return {file: projects.around(os.path.dirname(os.path.abspath(file))) for file in files}
