"""Checks the examples of these rules with cgsafe: each alone, found is exactly what `# expect:` says. No test framework."""

import json
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent / "acme_rules" / "fixtures"


def expected(path: Path) -> set[tuple[str, int, str]]:
    found = set()
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if match := re.search(r"# expect: (\w+)", line):
                found.add((file.name, number, match[1]))
    return found


def reported(path: Path, code: str) -> set[tuple[str, int, str]]:
    command = [sys.executable, "-m", "cgsafe", "check", "--output-format", "json", "--select", code, str(path)]
    findings = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["findings"]
    return {(Path(finding["path"]).name, finding["line"], finding["code"]) for finding in findings}


wrong = 0
for folder in sorted(EXAMPLES.iterdir()):
    for example in sorted(p for p in folder.iterdir() if p.name.startswith(("bad", "good"))):
        good = expected(example) == reported(example, folder.name)
        good &= bool(expected(example)) == example.name.startswith("bad")
        print(f"{folder.name}/{example.name}: {'as expected' if good else 'NOT as expected'}")
        wrong += not good
sys.exit(wrong > 0)
