"""How many blocks in which vLLM's developers accept a GPU sync are found to hold one: `python count_sync_allowed.py FOLDER`.

Each `with gpu_sync_allowed():` in a release was put there because a tool that watches a GPU saw a sync below it. A block
counts where an accepted finding lies in it, or is reached through a call in it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

from cgsafe import engine
from cgsafe.findings import Confidence, Finding
from cgsafe.rule import load_rules
from cgsafe.settings import Settings

MARKER = "gpu_sync_allowed"


def blocks(folder: Path) -> list[tuple[str, int, int, str]]:
    """(path, first line, last line, first statement) of each block."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if MARKER not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.With, ast.AsyncWith)) and any(
                MARKER in ast.unparse(item.context_expr) for item in node.items
            ):
                first = ast.unparse(node.body[0]).split("\n")[0]
                found.append((str(path.resolve()), node.lineno, node.end_lineno or node.lineno, first))
    return found


def places(finding: Finding) -> set[tuple[str, int]]:
    """Every line that a finding and its paths touch."""
    steps = [*finding.trace, *(step for _, way in finding.also for step in way)]
    return {(str(Path(finding.path).resolve()), finding.line), *((str(Path(s.path).resolve()), s.line) for s in steps)}


def main() -> None:
    folder = Path(sys.argv[1])
    rules, problems = load_rules()
    if problems:
        raise SystemExit("; ".join(problems))
    settings = Settings(
        hot_path=True, show_accepted=True, all_paths=True, min_confidence=Confidence.LOW, cache="--cache" in sys.argv
    )
    report = engine.check([str(folder)], settings, rules)
    touched: dict[tuple[str, int], Confidence] = {}
    for finding in [*report.findings, *report.accepted]:
        for place in places(finding):
            touched[place] = max(touched.get(place, Confidence.LOW), finding.confidence)
    counts: Counter[str] = Counter()
    for path, first, last, statement in blocks(folder):
        levels = [touched[path, line] for line in range(first, last + 1) if (path, line) in touched]
        verdict = max(levels).label if levels else "missed"
        counts[verdict] += 1
        print(f"{verdict:7} {Path(path).relative_to(folder.resolve())}:{first}  {statement[:90]}")
    total = sum(counts.values())
    found = total - counts["missed"]
    sure = counts["medium"] + counts["high"]
    print(f"{found} of {total} blocks hold a sync that is found, {sure} of them with medium confidence or more")
    regions = Counter((f.region, f.code) for f in report.findings if f.confidence >= Confidence.MEDIUM)
    print("shown without the blocks:", dict(sorted(Counter(r for r, _ in regions.elements()).items())))


if __name__ == "__main__":
    main()
