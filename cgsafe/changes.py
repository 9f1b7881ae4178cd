"""Only what a change is about: findings whose path runs through changed lines, and those that were not there before.

Git is only asked for what it stores (`ls-tree`, `ls-files`, `cat-file`); the comparison is done here. So no filter, hook or
diff program that a repository configures is run.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from cgsafe.baseline import Baseline, entry_of, match
from cgsafe.findings import Finding, Report
from cgsafe.settings import Settings
from cgsafe.source import STDIN, known_files

SIMILAR = 0.5  # share of equal lines from which on a new file counts as a renamed one
EMPTY_TREE = ""  # stands for the state before the first commit


class GitError(Exception):
    """What kept the change from being known."""


@dataclass
class Changes:
    """How the files differ from those of the base. Paths are absolute."""

    lines: dict[str, set[int]] = field(default_factory=dict)  # lines that were added or changed
    before: dict[str, bytes | None] = field(default_factory=dict)  # what changed files held; None: they were not there
    contents: dict[str, bytes | None] = field(default_factory=dict)  # what is to be checked instead of what is on disk

    def touch(self, finding: Finding) -> bool:
        """Whether a finding, or the path to it, runs through a changed line."""
        places = [(finding.path, n) for n in range(finding.line, max(finding.line, finding.end_line) + 1)]
        if finding.trace:
            places.append((finding.root.path, finding.root.line))
        places += [(step.path, step.line) for step in finding.trace]
        return any(n in self.lines.get(os.path.abspath(path), ()) for path, n in places)


def since(reference: str, paths: Sequence[str], exclude: Sequence[str]) -> Changes:
    """What is on disk against the point where the current branch left `reference`."""
    repository = _Repository(paths)
    base = repository.branch_point(reference)
    parts = repository.submodules()
    known = [path for path in _python(known_files(paths, exclude), repository) if not path.startswith(parts)]
    now = {path: _on_disk(path) for path in known}
    tree = repository.tree(base)
    gone = [path for path in tree if path not in now and _on_disk(path) is None]
    return _compared(repository, tree, now, gone)


def staged(paths: Sequence[str], exclude: Sequence[str]) -> Changes:
    """What is staged for the next commit against the last one. What is checked is what is staged."""
    repository = _Repository(paths)
    index = repository.index()
    blobs = repository.blobs(index.values())
    now: dict[str, bytes | None] = {path: blobs[oid] for path, oid in index.items()}
    tree = repository.tree(repository.head())
    changes = _compared(repository, tree, now, [path for path in tree if path not in index])
    changes.contents = {path: text for path, text in now.items() if _on_disk(path) != text}
    for path in _python(known_files(paths, exclude), repository):
        if path not in index and path in changes.before:
            changes.contents[path] = None  # taken out of the next commit, though still on disk
    return changes


def narrow(report: Report, changes: Changes, settings: Settings, check: Callable[[Settings], Report | None]) -> None:
    """Leave out the findings that have nothing to do with the changes; `check` runs the same check once more."""
    kept = [n for n, finding in enumerate(report.findings) if finding.path == STDIN or changes.touch(finding)]
    if len(kept) < len(report.findings) and changes.before:
        kept = _with_caused(report, changes, settings, check, kept)
    report.untouched = len(report.findings) - len(kept)
    report.findings[:] = [report.findings[n] for n in kept]
    report.suppressed[:] = [finding for finding in report.suppressed if changes.touch(finding)]


def _with_caused(
    report: Report,
    changes: Changes,
    settings: Settings,
    check: Callable[[Settings], Report | None],
    kept: list[int],
) -> list[int]:
    """Add the findings that the state before the change does not have, such as in unchanged callers of a changed helper."""
    contents = {**(settings.contents or {}), **changes.before}
    before = check(replace(settings, contents=contents))
    # A new file that was named by itself is missed in the state before, as it must be.
    if before is None or any(contents.get(os.path.abspath(e.path), b"") is not None for e in before.errors):
        report.notes.append(
            "the state before the change could not be checked; only what runs through changed lines is told"
        )
        return kept
    here = os.path.join(os.getcwd(), "baseline")
    entries = [entry_of(f, here) for f in (*before.findings, *before.suppressed, *before.unsure)]
    known, _ = match(Baseline(here, entries), report.findings, lambda path: not os.path.exists(path))
    return sorted({*kept, *(n for n in range(len(report.findings)) if n not in known)})


def _compared(repository: _Repository, base: dict[str, str], now: dict[str, bytes | None], gone: list[str]) -> Changes:
    """The changes from blobs of the base (path -> object) to contents; `gone` are files of the base that are no more."""
    changes = Changes()
    changed = [
        p for p, oid in base.items() if p in now and (text := now[p]) is not None and repository.name_of(text) != oid
    ]
    new = [path for path, text in now.items() if path not in base and text is not None]
    blobs = repository.blobs(base[path] for path in (*changed, *gone))
    for path in changed:
        if blobs[base[path]] == now[path]:
            continue
        changes.before[path] = blobs[base[path]]
        changes.lines[path] = _changed_lines(blobs[base[path]], now[path] or b"")
    for path in gone:
        changes.before[path] = blobs[base[path]]
    for path in new:
        changes.before[path] = None
        text = now[path] or b""
        changes.lines[path] = _changed_lines(_origin(text, [blobs[base[p]] for p in gone]), text)
    return changes


def _origin(text: bytes, gone: Collection[bytes]) -> bytes:
    """What a new file held before it was renamed; nothing where it is new indeed."""
    lines = set(text.splitlines())
    best, found = SIMILAR, b""
    for other in gone:
        theirs = set(other.splitlines())
        share = len(lines & theirs) / max(len(lines | theirs), 1)
        if share > best:
            best, found = share, other
    return found


def _changed_lines(before: bytes, after: bytes) -> set[int]:
    """The lines of `after` (from 1) that are not in `before`; line ends do not count."""
    old, new = ([line.rstrip(b"\r\n") for line in text.splitlines(keepends=True)] for text in (before, after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    changed: set[int] = set()
    for kind, _, _, first, last in matcher.get_opcodes():
        if kind in ("replace", "insert"):
            changed.update(range(first + 1, last + 1))
    return changed


def _python(paths: Iterable[str], repository: _Repository) -> list[str]:
    return [path for path in paths if path.startswith(repository.prefix)]


def _on_disk(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


class _Repository:
    """Reads from a git repository."""

    def __init__(self, paths: Sequence[str]) -> None:
        first = os.path.abspath(next((path for path in paths if path != STDIN), "."))
        self._folder = first if os.path.isdir(first) else os.path.dirname(first)
        self._environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        if os.environ.get("GIT_DIR"):  # as in a hook: git then takes the working directory for the top
            self._folder = os.getcwd()
            self._environment["GIT_DIR"] = os.path.abspath(os.environ["GIT_DIR"])
        try:
            top = os.fsdecode(self._git("rev-parse", "--show-toplevel")).rstrip("\n")
        except GitError as error:
            hint = "" if "not a git repository" in str(error) else f" ({error})"
            raise GitError(f"{self._folder} is not in a git repository{hint}") from None
        self.prefix = self._shown(top) + os.sep
        self._folder = top
        for path in paths:
            if path != STDIN and not (os.path.abspath(path) + os.sep).startswith(self.prefix):
                raise GitError(f"{path} is not in the git repository {top}")

    def _shown(self, top: str) -> str:
        """The top folder as paths name it: git resolves symbolic links, and checked paths are not resolved."""
        current = self._folder
        while os.path.realpath(current) != os.path.realpath(top):
            parent = os.path.dirname(current)
            if parent == current:
                return top
            current = parent
        return current

    def _git(self, *arguments: str, data: bytes = b"") -> bytes:
        command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
        try:
            done = subprocess.run(command, input=data, capture_output=True, cwd=self._folder, env=self._environment)
        except FileNotFoundError:
            raise GitError("git is not installed") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines() or [f"git failed with {done.returncode}"]
            raise GitError(lines[0].removeprefix("fatal: "))
        return done.stdout

    def branch_point(self, reference: str) -> str:
        """The commit where the current branch left another; that one itself where they have nothing in common."""
        try:
            commit = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
        except GitError:
            raise GitError(f"git knows no commit `{reference}`; is it fetched?") from None
        name = commit.decode().strip()
        try:
            return self._git("merge-base", name, "HEAD").decode().split()[0]
        except (GitError, IndexError):
            return name

    def head(self) -> str:
        try:
            return self._git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
        except GitError:
            return EMPTY_TREE

    def tree(self, commit: str) -> dict[str, str]:
        """The Python files of a commit: absolute path -> object."""
        if commit == EMPTY_TREE:
            return {}
        found = {}
        for row in self._git("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            head, _, name = row.partition(b"\t")
            if name.endswith(b".py") and head.startswith(b"100"):
                found[self.prefix + os.fsdecode(name)] = head.split()[2].decode()
        return found

    def index(self) -> dict[str, str]:
        """The Python files that are staged."""
        found = {}
        for row in self._git("ls-files", "-s", "-z").split(b"\0"):
            head, _, name = row.partition(b"\t")
            if name.endswith(b".py") and head.startswith(b"100"):
                if not head.endswith(b" 0"):
                    raise GitError(f"{os.fsdecode(name)} has a merge conflict, so nothing can be committed yet")
                found[self.prefix + os.fsdecode(name)] = head.split()[1].decode()
        return found

    def submodules(self) -> tuple[str, ...]:
        """The folders of other repositories in this one: what is in them is not of its commits."""
        rows = (row.partition(b"\t") for row in self._git("ls-files", "-s", "-z").split(b"\0"))
        return tuple(self.prefix + os.fsdecode(name) + os.sep for head, _, name in rows if head.startswith(b"160000"))

    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of objects."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        output = self._git("cat-file", "--batch", data="".join(f"{name}\n" for name in wanted).encode())
        found, at = {}, 0
        for name in wanted:
            end = output.index(b"\n", at)
            head = output[at:end].split()
            if len(head) != 3:
                raise GitError(f"the repository lacks the object {name}; is the clone a partial one?")
            size = int(head[2])
            found[name] = output[end + 1 : end + 1 + size]
            at = end + size + 2
        return found

    @staticmethod
    def name_of(text: bytes) -> str:
        """The name that git gives to a content, in a repository of SHA-1 objects."""
        return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()
