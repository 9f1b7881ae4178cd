"""What is remembered between runs, in the user's cache folder: indexes by content, and what runs found.

Plain data only (`marshal`), never pickles, and never inside the checked project: nothing that a repository ships can
reach it. Whatever is missing or broken is worked out anew.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from pathlib import Path
from typing import Any

from cgsafe import __version__

KEEP_INDEXES = 12  # the oldest go first


def folder() -> Path | None:
    """The cache folder; None where the environment names no usable place."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        path = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:
        return None
    return path / "cgsafe" if path.is_absolute() else None


def tool_stamp() -> str:
    """Changes whenever the tool itself, its tables or its rules do, also while it is being worked on."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(f"{__version__} {sys.version_info[:3]}".encode())
    package = Path(__file__).parent
    for base in (package, package.parent / "rules"):
        for path in sorted([*base.rglob("*.py"), *base.rglob("*.toml")]):
            try:
                status = path.stat()
            except OSError:
                continue
            digest.update(f"{path} {status.st_mtime_ns} {status.st_size}".encode())
    return digest.hexdigest()


class Store:
    """One kind of remembered thing: a folder with a file for each key."""

    def __init__(self, kind: str, keep: int):
        base = folder()
        self.folder = base / kind if base is not None else None
        self.keep = keep

    def load(self, key: str) -> Any | None:
        """The value under a key, or None."""
        if self.folder is None:
            return None
        path = self.folder / f"{key}.marshal"
        try:
            stored_key, value = marshal.loads(path.read_bytes())
            os.utime(path)
        except (OSError, ValueError, EOFError, TypeError):
            return None
        return value if stored_key == key else None

    def save(self, key: str, value: Any) -> None:
        """Remember a value of plain data. A folder that cannot be written is no fault."""
        if self.folder is None:
            return
        try:
            data = marshal.dumps((key, value))
        except ValueError:
            return
        self.write(key, data)

    def write(self, key: str, data: bytes) -> None:
        """As `save`, for a value that is in bytes already."""
        if self.folder is None:
            return
        path = self.folder / f"{key}.marshal"
        draft = path.with_name(f"{key}.{os.getpid()}.draft")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(data)
            draft.replace(path)
            self._prune()
        except (OSError, ValueError):
            try:
                draft.unlink(missing_ok=True)
            except OSError:
                return

    def _prune(self) -> None:
        assert self.folder is not None
        entries = []
        for path in self.folder.glob("*.marshal"):
            try:
                entries.append((path.stat().st_mtime_ns, path))
            except OSError:
                continue
        for _, path in sorted(entries)[: -self.keep]:
            path.unlink(missing_ok=True)
