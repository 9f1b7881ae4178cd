"""What a check produces: findings, problems and the report that holds them. Plain frozen data, no behaviour."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Severity(enum.Enum):
    """How bad it is when the finding is true."""

    ERROR = "error"  # the capture fails
    WARNING = "warning"  # silently wrong, or slow


class Confidence(enum.IntEnum):
    """How sure the tool is that the finding is true; ordered, so that `>=` reads naturally."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Step:
    """One step of a call path: a place in a function, and what happens there."""

    path: str
    line: int
    function: str
    note: str = ""


@dataclass(frozen=True)
class Root:
    """A place where captured code starts, and why it counts as one."""

    kind: str  # "module-forward", "graph-context", "compile", ...
    reason: str
    path: str
    line: int
    function: str


@dataclass(frozen=True)
class Edit:
    """A replacement of a span of text; lines and columns count from 1, the end column is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    replacement: str


@dataclass(frozen=True)
class Fix:
    """What to do about a finding; `edits` is empty where the change is not mechanical, or was not asked for.

    A rule gives the `transform` by which the edits can be worked out: the name of a transformer and its arguments
    (`cgsafe.fixes`).
    """

    description: str
    safety: str = "manual"  # "safe" (means the same), "unsafe" (is to be reviewed) or "manual" (by hand)
    edits: tuple[Edit, ...] = ()
    transform: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suppression:
    """Why a finding is not reported."""

    kind: str  # "ignore", "ignore-file", "off": a comment; "per-file-ignores": the configuration
    line: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """A hazard at a place, with the shortest path that leads there from a root."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    message: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str
    root: Root
    trace: tuple[Step, ...]
    root_count: int = 1
    also: tuple[tuple[Root, tuple[Step, ...]], ...] = ()
    fix: Fix | None = None
    fingerprint: str = ""
    outside: bool = False  # lies outside the given paths, but a root in them runs into it
    source: str = ""  # the text of the expression that matters, on one line, whatever its layout
    suppression: Suppression | None = None
    baseline: str = ""  # "new" or "unchanged" where a baseline was given
    region: str = "captured"  # or "hot-path": no graph records it, but it runs at every step
    accepted: str = ""  # the block around it in which the author accepts a wait


@dataclass(frozen=True)
class Problem:
    """Something that kept a file, rule or setting from being used as asked; line 0 when it concerns the whole file."""

    path: str
    line: int
    message: str


@dataclass
class Report:
    """The outcome of one check."""

    findings: list[Finding] = field(default_factory=list)
    accepted: list[Finding] = field(default_factory=list)  # in blocks in which a wait is accepted, where asked for
    errors: list[Problem] = field(default_factory=list)
    files_checked: int = 0  # files in the given paths that were read and understood
    files_known: int = 0  # files of the projects around them
    roots: int = 0
    hidden: int = 0  # findings below the asked confidence
    suppressed: list[Finding] = field(default_factory=list)  # silenced by comments or by the configuration
    checked: list[str] = field(default_factory=list)  # the files behind `files_checked`
    stale: int = 0  # entries of a baseline that match nothing any more
    untouched: int = 0  # findings left out because they have nothing to do with the change that was asked about
    unsure: list[Finding] = field(default_factory=list)  # those below the asked confidence
    fixed: int = 0  # findings that were fixed, and are gone
    notes: list[str] = field(default_factory=list)  # what limits the outcome without being a fault
    statistics: dict[str, int | float | str] = field(default_factory=dict)
