"""A random sample of what `cgsafe check FOLDER` finds with its default settings, to be judged by reading the code.

`python sample_findings.py FOLDER --seed 1 --count 40` prints each finding of the sample with its root, the calls from there
to it, and the line; `--report FILE` samples the JSON of a check that was made before. The sample depends on nothing but the
findings and the seed.
"""

from __future__ import annotations

import argparse
import json
import linecache
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def findings_of(folder: Path, report: Path | None) -> list[dict[str, Any]]:
    """All findings below the folder, sorted by path, line, code and column."""
    if report is None:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "findings.json")
            command = [sys.executable, "-m", "cgsafe", "check", str(folder), "--output-format", "json"]
            done = subprocess.run([*command, "--output", str(file)], check=False, cwd=scratch)
            if not file.exists():
                raise SystemExit(f"the check of {folder} wrote no findings (exit code {done.returncode})")
            found = json.loads(file.read_text(encoding="utf-8"))["findings"]
    else:
        found = json.loads(report.read_text(encoding="utf-8"))["findings"]
    return sorted(found, key=lambda finding: tuple(finding[key] for key in ("path", "line", "code", "column")))


def relative(path: str, folder: Path) -> str:
    """The path below the folder, where it lies there."""
    whole = Path(path).resolve()
    return whole.relative_to(folder).as_posix() if whole.is_relative_to(folder) else str(whole)


def shown(number: int, finding: dict[str, Any], folder: Path) -> str:
    """One finding, with everything that a reader needs to find the code of it."""
    place = f"{relative(finding['path'], folder)}:{finding['line']}"
    root = finding["root"]
    lines = [f"{number}. {place}  {finding['code']} {finding['confidence']}  {finding['message']}"]
    if root:
        where = f"{relative(root['path'], folder)}:{root['line']}"
        lines.append(f"    root ({finding['root_count']}): {where} {root['function']}: {root['reason']}")
    lines += [
        f"    {relative(step['path'], folder)}:{step['line']} {step['function']}  {step['note']}".rstrip()
        for step in finding["trace"]
    ]
    lines.append(f"    > {linecache.getline(finding['path'], finding['line']).strip()}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--report", type=Path, help="the JSON of an earlier check of the folder")
    options = parser.parse_args()
    folder = options.folder.resolve()
    found = findings_of(folder, options.report)
    sample = random.Random(options.seed).sample(found, min(options.count, len(found)))
    print(f"{len(sample)} of {len(found)} findings, seed {options.seed}")
    for number, finding in enumerate(sample, 1):
        print(shown(number, finding, folder))


if __name__ == "__main__":
    main()
