"""What measure_models.py saw against what `cgsafe check` says: which sites it misses, which findings are false.

    cgsafe check FOLDER/transformers --output-format json > FINDINGS.json
    python tests/gpu/compare_models.py MEASURED.json ... FINDINGS.json [--package transformers] [--show N] [--sites OUT.json]

Of several measurements of one release, the first that has measured a model counts. A finding covers a line from its first to
its last.

- **Recall**: of the measured sites, those that a finding covers. A site counts if it was seen in a scenario up to the first
  whose capture fails: what waits only while decoding does not count for a model whose plain forward cannot be captured.
- **Precision**: of the findings CG1xx and CG2xx on lines that ran in any scenario, those that cover a site of any scenario.
  Lines that ran with inputs that do not bring out the hazard make a true finding look false here.

`--sites` writes the measurement down without stacks and models' lines, as small as a repository wants it: the sites, each
with its models and scenarios (`counts` tells whether it counts for recall), and the ranges of lines that ran in any model.
What it writes can be given as MEASURED.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCENARIOS = ("forward", "forward_padded", "static_decode")


@dataclass
class Site:
    """A line that waits, or that fails in a capture; the models and scenarios in which it does (which count, if any do)."""

    file: str
    line: int
    function: str
    how: str = "sync"
    counts: bool = False
    models: list[str] = field(default_factory=list)
    scenarios: list[str] = field(default_factory=list)


@dataclass
class Measured:
    package: str
    torch: str
    models: list[str]  # in which anything ran
    sites: list[Site]
    ran: dict[str, set[int]]  # lines, by file


@dataclass(frozen=True)
class Found:
    """A finding; its file is relative to the package."""

    code: str
    file: str
    line: int
    end_line: int
    confidence: str = ""
    message: str = ""

    @property
    def lines(self) -> range:
        return range(self.line, self.end_line + 1)


@dataclass
class Compared:
    covered: list[Site]
    missed: list[Site]
    true: list[Found]
    false: list[Found]


# -- reading ------------------------------------------------------------------------------------------------------------


def counting(capture: dict[str, str]) -> set[str]:
    """The scenarios up to the first whose capture fails."""
    failed = [n for n, scenario in enumerate(SCENARIOS) if capture.get(scenario) == "fail"]
    return set(SCENARIOS[: failed[0] + 1] if failed else SCENARIOS)


def merged(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of all, each model once: the first in which something ran."""
    results: dict[str, dict[str, Any]] = {}
    for document in documents:
        for result in document["results"]:
            if result["class"] and result.get("lines"):
                results.setdefault(result["model"], result)
    return list(results.values())


def sites_of(results: Iterable[dict[str, Any]]) -> list[Site]:
    """The sites of all models, in order. One that counts for some model has these models and their scenarios only."""
    sites: dict[tuple[str, int, str], Site] = {}
    for result in results:
        counted = counting(result["capture"])
        for file, line, function, scenarios, how, *_ in result["sites"]:
            where = [scenario for scenario in scenarios if scenario in counted]
            site = sites.setdefault((file, line, function), Site(file, line, function, how))
            if where and not site.counts:
                site.counts, site.models, site.scenarios, site.how = True, [], [], how
            if where or not site.counts:
                site.models.append(result["model"])
                site.scenarios = sorted({*site.scenarios, *(where or scenarios)})
    return [sites[key] for key in sorted(sites)]


def measurement(documents: list[dict[str, Any]]) -> Measured:
    """What was measured, of the files of one release."""
    first = documents[0]
    if len({document["package"] for document in documents}) > 1:
        raise ValueError("these measurements are of different releases")
    if "ran" in first:  # written by --sites
        sites = [Site(**site) for site in first["sites"]]
        ran = {file: lines_of(text) for file, text in first["ran"].items()}
        return Measured(first["package"], first["torch"], first["models"], sites, ran)
    results = merged(documents)
    ran = {}
    for result in results:
        for file, lines in result["lines"].items():
            ran.setdefault(file, set()).update(lines)
    return Measured(first["package"], first["torch"], [r["model"] for r in results], sites_of(results), ran)


def ranges(lines: Iterable[int]) -> str:
    """{1, 2, 3, 7} as "1-3,7"."""
    spans: list[list[int]] = []
    for line in sorted(lines):
        if spans and spans[-1][1] == line - 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def lines_of(text: str) -> set[int]:
    spans = [part.split("-") for part in text.split(",") if part]
    return {line for span in spans for line in range(int(span[0]), int(span[-1]) + 1)}


def compact(measured: Measured) -> str:
    """The text that --sites writes: one site and one file a line."""
    rows = {
        "sites": "[\n" + ",\n".join(json.dumps(asdict(site)) for site in measured.sites) + "\n]",
        "ran": "{\n" + ",\n".join(f'{json.dumps(f)}: "{ranges(n)}"' for f, n in sorted(measured.ran.items())) + "\n}",
    }
    head = {name: json.dumps(getattr(measured, name)) for name in ("package", "torch", "models")}
    return "{" + ",\n".join(f'"{name}": {text}' for name, text in {**head, **rows}.items()) + "}\n"


def inside(path: str, package: str) -> str:
    """A path relative to the package: what follows the last folder of that name."""
    parts = path.replace("\\", "/").split("/")
    return "/".join(parts[len(parts) - parts[::-1].index(package) :] if package in parts else parts)


def findings_of(document: dict[str, Any], package: str) -> list[Found]:
    """The findings of a report of `cgsafe check --output-format json`."""
    return [
        Found(
            f["code"],
            inside(f["path"], package),
            f["line"],
            max(f["line"], f["end_line"]),
            f["confidence"],
            f["message"],
        )
        for f in document["findings"]
    ]


# -- comparing ----------------------------------------------------------------------------------------------------------


def compare(measured: Measured, findings: list[Found]) -> Compared:
    covered = {(finding.file, line) for finding in findings for line in finding.lines}
    waits = {(site.file, site.line) for site in measured.sites}
    compared = Compared([], [], [], [])
    for site in measured.sites:
        if site.counts:
            (compared.covered if (site.file, site.line) in covered else compared.missed).append(site)
    for finding in findings:
        if not finding.code.startswith(("CG1", "CG2")):
            continue
        if measured.ran.get(finding.file, set()).isdisjoint(finding.lines):
            continue
        true = any((finding.file, line) in waits for line in finding.lines)
        (compared.true if true else compared.false).append(finding)
    return compared


def fraction(part: int, rest: int) -> str:
    whole = part + rest
    return f"{part}/{whole}" + (f" = {part / whole:.1%}" if whole else "")


def report(measured: Measured, compared: Compared, show: int) -> Iterable[str]:
    """The lines to print; a negative `show` shows all."""

    def some(things: list[Any], title: str) -> Iterable[Any]:
        shown = things if show < 0 else things[:show]
        yield f"{title}: {len(things)}" + (f", of which {len(shown)} are shown" if len(shown) < len(things) else "")
        yield from shown

    yield f"{measured.package}, torch {measured.torch}: {len(measured.models)} models, {len(measured.sites)} sites"
    for site in some(compared.missed, "missed"):
        if isinstance(site, Site):
            more = f" and {len(site.models) - 3} more" if len(site.models) > 3 else ""
            where = f"{', '.join(site.models[:3])}{more}; {', '.join(site.scenarios)}"
            site = f"  {site.file}:{site.line} {site.function} ({where}; {site.how})"
        yield site
    for finding in some(compared.false, "false"):
        if isinstance(finding, Found):
            finding = f"  {finding.file}:{finding.line} {finding.code} {finding.confidence}: {finding.message}"
        yield finding
    yield f"recall {fraction(len(compared.covered), len(compared.missed))}"
    yield f"precision {fraction(len(compared.true), len(compared.false))}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold measured models against findings.")
    parser.add_argument("measured", type=Path, nargs="+", metavar="MEASURED.json")
    parser.add_argument("findings", type=Path, metavar="FINDINGS.json")
    parser.add_argument("--package", default="transformers", help="the folder below which the findings' files are")
    parser.add_argument("--show", type=int, default=-1, metavar="N", help="print at most so many missed and false ones")
    parser.add_argument("--sites", type=Path, metavar="OUT.json", help="write the measurement down in short")
    args = parser.parse_args()
    measured = measurement([json.loads(path.read_text()) for path in args.measured])
    findings = findings_of(json.loads(args.findings.read_text()), args.package)
    if args.sites:
        args.sites.write_text(compact(measured))
    for line in report(measured, compare(measured, findings), args.show):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
