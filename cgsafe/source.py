"""The Source room: which files there are, and what they say. Checked code is read here, never imported."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cgsafe.findings import Problem
from cgsafe.ignores import BUILD_FOLDERS, BUILD_MARKERS, SKIPPED_FOLDERS, Excludes, GitIgnores
from cgsafe.projects import Projects, Surroundings, package_root, project_folder, project_roots

__all__ = [
    "STDIN",
    "Projects",
    "Source",
    "Surroundings",
    "decode",
    "discover",
    "known_files",
    "package_root",
    "project_folder",
    "project_roots",
    "read",
]

STDIN = "-"  # the path that stands for the standard input

# Opening must never wait for a writer (named pipes) or make a terminal the controlling one.
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_COOKIE = re.compile(rb"[ \t\f]*#[^\r\n]*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"[ \t\f]*(?:#[^\r\n]*)?(?:\r\n|\r|\n)")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Source:
    """One file as it is. Line ends stay what they are, so offsets into `text` are those of the file."""

    path: str  # as given to `read`
    raw: bytes
    text: str  # without a byte order mark
    digest: str  # of `raw`
    encoding: str  # the name of the codec; "utf-8-sig" where the file starts with a byte order mark

    @property
    def lines(self) -> list[str]:
        """The lines as `ast` counts them: form feeds and Unicode line separators end none."""
        return _LINE_END.split(self.text)


def read(path: str, stdin: bytes | None = None, contents: Mapping[str, bytes | None] | None = None) -> Source | Problem:
    """Read one file; whatever goes wrong is told in a Problem.

    `stdin` is the text behind the path "-". `contents`: what files are to hold, by absolute path, instead of
    what is on the disk; None: there is no such file.
    """
    if path == STDIN and stdin is not None:
        return decode(path, stdin)
    if contents and (absolute := os.path.abspath(path)) in contents:
        raw_text = contents[absolute]
        return decode(path, raw_text) if raw_text is not None else Problem(path, 0, "no such file or folder")
    try:
        raw = _read_regular(path)
    except (OSError, ValueError) as error:
        return Problem(path, 0, _reason(error))
    return decode(path, raw)


def decode(path: str, raw: bytes) -> Source | Problem:
    """Turn the bytes of a file into text, as PEP 263 says."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Problem(path, 1, "encoded as UTF-16, which Python does not read; save it as UTF-8")
    if (position := raw.find(b"\0")) >= 0:
        return Problem(path, _line_of(raw, position), f"NUL byte at offset {position}: not Python source")
    marked = raw.startswith(codecs.BOM_UTF8)
    body = raw[3:] if marked else raw
    encoding, line = "utf-8", 1
    if (cookie := _cookie(body)) is not None:
        name, line = cookie
        found = _codec(name)
        if found is None:
            return Problem(path, line, f"the declared encoding `{name}` is unknown")
        if marked and found != "utf-8":
            return Problem(path, line, f"declares the encoding `{name}`, but starts with a UTF-8 byte order mark")
        encoding = found
    try:
        text = body.decode(encoding)
        if encoding != "utf-8":
            # Some codecs can make what no source text may hold; utf-8 cannot, and NUL was looked for above.
            if "\0" in text:
                return Problem(path, line, f"NUL character once decoded as `{encoding}`: not Python source")
            text.encode("utf-8")
    except UnicodeDecodeError as error:
        position = error.start + len(raw) - len(body)
        message = f"not valid {encoding}: byte 0x{raw[position]:02x} at offset {position}"
        if cookie is None:
            message += "; no encoding is declared, so UTF-8 is expected"
        return Problem(path, _line_of(raw, position), message)
    except (UnicodeError, LookupError, ValueError) as error:
        return Problem(path, line, f"cannot decode it as `{encoding}`: {error}")
    digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
    return Source(path, raw, text, digest, "utf-8-sig" if marked else encoding)


def discover(paths: Sequence[str], exclude: Sequence[str] = ()) -> tuple[list[str], list[Problem]]:
    """The Python files behind the given paths, sorted, and a problem for each path that could not be used.

    A path is a file, a folder or "-". A file that is named is taken whatever it is called and whatever ignores it
    (except a stub, `.pyi`: it holds no code). In folders, `.py` files count, unless a .gitignore file, a pattern in
    `exclude` or `SKIPPED_FOLDERS` leaves them out. Each file is taken once, under the path by which it was reached
    first. Paths come back as given: `discover(["models"])` gives `models/a.py`, and `discover(["."])` gives `a.py`.

    Symbolic links to files are followed. Symbolic links to folders are followed only where they lead to a place in the
    same project (or given folder), so that a link to `/` does not make everything part of a checkout.
    """
    walk = _Walk(paths, exclude)
    for path in paths:
        walk.take(path)
    walk.follow_links()
    return sorted(walk.files), walk.problems


def known_files(paths: Sequence[str], exclude: Sequence[str] = ()) -> list[str]:
    """Absolute paths of all files that may be consulted when `paths` are checked, sorted: these and those around them.

    Around a path that lies in a package: all of the top-most package folder. Around a path in no package: all of its
    project, if there is one; otherwise a folder stands for itself, and a file for its folder's files and the packages
    directly beside it. See `Projects` for what a package and a project is. Standard input counts as a file in the
    working directory.
    """
    walk = _Walk(paths, exclude)
    for path in paths:
        if path != STDIN:
            walk.take(os.path.abspath(path) if "\0" not in path else path)
    for path in paths:
        walk.take_around(os.path.join(os.getcwd(), "<stdin>") if path == STDIN else os.path.abspath(path))
    walk.follow_links()
    return sorted(walk.files)


class _Walk:
    """One search for files. Real files first, symbolic links at the end: a file keeps its real name if it has one."""

    def __init__(self, paths: Sequence[str], exclude: Sequence[str]) -> None:
        self.files: list[str] = []
        self.problems: list[Problem] = []
        self._seen: set[str] = set()  # real paths of files and folders
        self._links: list[tuple[str, str, GitIgnores, str]] = []  # shown path, absolute path, ignores, boundary
        self._projects = Projects()
        folders = [os.path.abspath(path) for path in paths if path != STDIN and "\0" not in path]
        try:
            self._excludes = Excludes(exclude, [path for path in folders if os.path.isdir(path)])
        except ValueError as error:
            self.problems.append(Problem("", 0, f"a pattern to exclude cannot be used: {error}"))
            self._excludes = Excludes(())

    def take(self, path: str) -> None:
        """Take a path that was given: no ignore file and no pattern keeps it out."""
        if path == STDIN:
            if STDIN not in self.files:
                self.files.append(STDIN)
            return
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError) as error:
            self.problems.append(Problem(path, 0, _reason(error)))
            return
        if stat.S_ISDIR(mode):
            shown = "" if os.path.normpath(path) == "." else path
            self._folder(shown, os.path.abspath(path))
        elif not path.endswith(".pyi"):
            self._file(path, os.path.realpath(path))

    def take_around(self, path: str) -> None:
        """Take what is known around an absolute path."""
        is_folder = os.path.isdir(path)
        folder = path if is_folder else os.path.dirname(path)
        if not os.path.isdir(folder):
            return
        around = self._projects.around(folder)
        whole = around.package or (around.project if self._projects.has_marker(around.project or folder) else "")
        if whole:
            self._folder(whole, whole)
        elif not is_folder and not self._projects.is_common(folder):
            self._beside(folder)

    def follow_links(self) -> None:
        """Take what the symbolic links lead to, which may hold more links."""
        while self._links:
            links, self._links = sorted(self._links, key=lambda link: link[0]), []
            for shown, absolute, ignores, boundary in links:
                real = os.path.realpath(absolute)
                if os.path.isdir(real):
                    if _within(real, boundary) and not ignores.ignores(absolute, True):
                        self._tree(shown, absolute, real, ignores, boundary)
                elif os.path.isfile(real) and shown.endswith(".py") and not ignores.ignores(absolute, False):
                    self._file(shown, real)

    def _file(self, shown: str, real: str) -> None:
        if real not in self._seen:
            self._seen.add(real)
            self.files.append(shown)

    def _folder(self, shown: str, absolute: str) -> None:
        """Take a whole folder, with the .gitignore files above it in force."""
        project = self._projects.around(absolute).project
        real = os.path.realpath(absolute)
        boundary = os.path.realpath(project) if project and _within(absolute, project) else real
        self._tree(shown, absolute, real, _ignores_above(absolute), boundary)

    def _beside(self, folder: str) -> None:
        """Take the files of a folder and the packages directly in it."""
        for entry in self._entries(folder, folder):
            if entry.is_dir(follow_symlinks=False):
                if os.path.isfile(os.path.join(entry.path, "__init__.py")):
                    self._folder(entry.path, entry.path)
            elif entry.name.endswith(".py") and not self._excludes.match(entry.path, False):
                self._file(entry.path, os.path.realpath(entry.path))

    def _tree(self, shown: str, absolute: str, real: str, ignores: GitIgnores, boundary: str) -> None:
        # An explicit stack, because folders may be nested deeper than Python's recursion goes.
        stack = [(shown, absolute, real, ignores)]
        while stack:
            shown, absolute, real, ignores = stack.pop()
            if real in self._seen:
                continue
            self._seen.add(real)
            entries = self._entries(shown or ".", absolute)
            names = {entry.name for entry in entries}
            if "pyvenv.cfg" in names:
                continue  # a virtual environment, whatever its name
            if ".gitignore" in names:
                ignores = ignores.entering(absolute, _gitignore(absolute))
            # Prefixes rather than os.path.join: this is the hot loop of the walk.
            prefix, shown_prefix, real_prefix = _prefix(absolute), _prefix(shown), _prefix(real)
            beside_project = not BUILD_MARKERS.isdisjoint(names)
            for entry in entries:
                name = entry.name
                path = prefix + name
                if entry.is_symlink():
                    if not self._excludes.match(path, False) and not self._excludes.match(path, True):
                        self._links.append((shown_prefix + name, path, ignores, boundary))
                elif entry.is_dir(follow_symlinks=False):
                    if name in SKIPPED_FOLDERS or (beside_project and name in BUILD_FOLDERS):
                        continue
                    if not ignores.ignores(path, True) and not self._excludes.match(path, True):
                        stack.append((shown_prefix + name, path, real_prefix + name, ignores))
                elif (
                    name.endswith(".py") and not ignores.ignores(path, False) and not self._excludes.match(path, False)
                ):
                    self._file(shown_prefix + name, real_prefix + name)

    def _entries(self, shown: str, absolute: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(absolute) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(Problem(shown, 0, _reason(error)))
            return []


def _prefix(folder: str) -> str:
    return folder if not folder or folder.endswith(("/", os.sep)) else folder + os.sep


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(_prefix(folder))


def _ignores_above(folder: str) -> GitIgnores:
    """The .gitignore files above a folder, from the top of its repository on.

    Without a repository above there are none. If they leave out the folder itself or one that holds it, they are
    dropped: who names an ignored folder wants to see what is in it.
    """
    above: list[str] = []
    current = folder
    while not os.path.exists(os.path.join(current, ".git")):
        parent = os.path.dirname(current)
        if parent == current:
            return GitIgnores()
        above.append(parent)
        current = parent
    ignores = GitIgnores()
    chain = [*reversed(above), folder]
    for outer, inner in pairwise(chain):
        if os.path.isfile(os.path.join(outer, ".gitignore")):
            ignores = ignores.entering(outer, _gitignore(outer))
        if ignores.ignores(inner, True):
            return GitIgnores()
    return ignores


def _gitignore(folder: str) -> str:
    try:
        return _read_regular(os.path.join(folder, ".gitignore")).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


def _read_regular(path: str) -> bytes:
    """The content of a regular file; pipes, sockets and devices are refused before anything is read from them."""
    descriptor = os.open(path, _OPEN_FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"not a regular file but {_kind(status.st_mode)}")
        chunks = []
        while chunk := os.read(descriptor, max(status.st_size + 1, 65536)):
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return name
    return "a special file"


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    if isinstance(error, OSError):
        return f"cannot read it: {error.strerror or error}"
    return "not a valid path: it contains a NUL character" if "null" in str(error) else str(error)


def _cookie(body: bytes) -> tuple[str, int] | None:
    """The encoding that one of the first two lines declares, and that line."""
    if (match := _COOKIE.match(body)) is not None:
        return match[1].decode("ascii", "replace"), 1
    if (blank := _BLANK.match(body)) is not None and (match := _COOKIE.match(body, blank.end())) is not None:
        return match[1].decode("ascii", "replace"), 2
    return None


def _codec(name: str) -> str | None:
    """The canonical name of a text encoding; None if there is no such."""
    # Editors write `utf-8-unix` and the like, which Python reads as the name before the line-end style.
    plain = name[:12].lower().replace("_", "-")
    if plain == "utf-8" or plain.startswith("utf-8-"):
        return "utf-8"
    if plain.startswith(("latin-1-", "iso-8859-1-", "iso-latin-1-")) or plain in ("latin-1", "iso-latin-1"):
        return "iso8859-1"
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    return found.name if getattr(found, "_is_text_encoding", True) else None


def _line_of(raw: bytes, position: int) -> int:
    """The number of the line that the byte at `position` lies in."""
    before = raw[:position]
    return before.count(b"\n") + before.count(b"\r") - before.count(b"\r\n") + 1
