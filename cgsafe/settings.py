"""What a check is asked to do: the merged outcome of command line and configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cgsafe.findings import Confidence, Severity


@dataclass(frozen=True)
class Settings:
    """Everything that can change the outcome of a check, and how it is run."""

    select: tuple[str, ...] = ()  # code prefixes; empty: all rules
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()  # on top of `select`, or of all rules
    exclude: tuple[str, ...] = ()  # gitignore-style patterns, relative to the working directory
    min_confidence: Confidence = Confidence.MEDIUM
    hot_path: bool = False  # also what runs at every step outside of captures
    show_accepted: bool = False  # with it: also what stands where the author accepts a wait
    profile: str = ""  # what the project adds to the framework profiles, as JSON text
    all_paths: bool = False
    jobs: int = 0  # 0: as many as there are processors
    cache: bool = True
    stdin: bytes | None = None  # the text behind the path "-"
    edits: bool = False  # work out the edits of fixes
    contents: Mapping[str, bytes | None] | None = (
        None  # what files hold, by absolute path, instead of what is on the disk
    )
    severity: Mapping[str, Severity] = field(default_factory=dict)  # by code or prefix; the longest counts
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()  # pattern (as in `exclude`), codes
    require_reason: bool = False  # a comment that silences a finding says why
