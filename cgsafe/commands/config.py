"""`cgsafe config`: which settings are in force, and where each comes from."""

from __future__ import annotations

from typing import Any

import click

from cgsafe.commands import options as common
from cgsafe.commands.common import CLEAN, check_config_codes, load_config, loaded_rules


@click.command(short_help="Show the settings that are in force, and from where.")
@common.output_format()
@click.option("--schema", is_flag=True, help="Print the JSON schema of the configuration, for editors.")
def config(output_format: str, schema: bool) -> int:
    """Show the settings that are in force in this folder, and where each of them comes from."""
    import json

    from cgsafe.report.style import escape
    from cgsafe.terminal import standard_output

    with standard_output() as out:
        if schema:
            from cgsafe.schemas import text_of

            out.write(text_of("config"))
            return CLEAN
        found = load_config()
        rules, _ = loaded_rules(found.plugins)
        check_config_codes(rules, found)
        rows = _rows(found)
        if output_format == "json":
            keys = ("key", "value", "path", "line")
            data = {
                "version": 1,
                "path": found.path or None,
                "settings": [dict(zip(keys, row, strict=True)) for row in rows],
            }
            out.write(json.dumps(data, indent=2) + "\n")
            return CLEAN
        origin = f"from {escape(found.path)}" if found.path else "no configuration file: all defaults"
        out.write(f"# {origin}\n")
        wide = max(len(key) for key, *_ in rows)
        for key, value, path, line in rows:
            where = f"{escape(path)}:{line}" if path and line else escape(path or "default")
            out.write(f"{key.ljust(wide)} = {escape(_shown(value))}  # {where}\n")
    return CLEAN


def _rows(config: Any) -> list[tuple[str, Any, str | None, int]]:
    """Key, value as plain data, and the file and line that it comes from."""
    import os

    from cgsafe.config import DEFAULTS, KEYS

    rows: list[tuple[str, Any, str | None, int]] = []
    for key in KEYS:
        value = getattr(config, key.replace("-", "_"))
        if value is None:
            rows.append((key, DEFAULTS[key], None, 0))
        else:
            rows.append((key, _plain(value), os.path.relpath(config.path), config.lines.get(key, 0)))
    return rows


def _plain(value: Any) -> Any:
    """A setting as JSON has it."""
    from cgsafe.findings import Confidence, Severity

    if isinstance(value, Confidence):
        return value.label
    if isinstance(value, Severity):
        return value.value
    if isinstance(value, tuple):
        if value and all(isinstance(item, tuple) for item in value):
            return {key: _plain(item) for key, item in value}
        return [_plain(item) for item in value]
    return value


def _shown(value: Any) -> str:
    """A setting as TOML has it."""
    import json

    if value is None:
        return "(none)"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_shown(v)}" for k, v in value.items()) + " }" if value else "{}"
    return json.dumps(value, ensure_ascii=False)
