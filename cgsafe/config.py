"""The project's own settings: `[tool.cgsafe]` in pyproject.toml, or cgsafe.toml."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cgsafe.findings import Confidence, Severity
from cgsafe.selection import split_codes
from cgsafe.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE = "cgsafe.toml"
SHARED_FILE = "pyproject.toml"


class ConfigError(Exception):
    """A configuration that cannot be used; the text says where and why."""


@dataclass(frozen=True)
class Config:
    """What the configuration says; None where it says nothing."""

    path: str = ""  # the file it comes from, "" where there is none
    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] | None = None
    severity: tuple[tuple[str, Severity], ...] | None = None
    min_confidence: Confidence | None = None
    baseline: str | None = None
    require_reason: bool | None = None
    plugins: tuple[str, ...] | None = None
    hot_path: bool | None = None
    profile: dict[str, Any] | None = None  # additions to the framework profiles
    lines: dict[str, int] = field(default_factory=dict)  # the line of each key, as far as it could be found

    def codes(self) -> list[tuple[str, tuple[str, ...]]]:
        """The keys that hold codes, and these."""
        found = [("select", self.select), ("extend-select", self.extend_select), ("ignore", self.ignore)]
        found += [("per-file-ignores", codes) for _, codes in self.per_file_ignores or ()]
        found.append(("severity", tuple(code for code, _ in self.severity or ())))
        return [(key, codes or ()) for key, codes in found]

    def error(self, key: str, message: str) -> ConfigError:
        """An error about the value of a key, with its place."""
        return _error(self.path, self.lines.get(key, 0), f"`{key}`: {message}")


def _strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ValueError(f'expected a list of strings, found a string; write ["{value}"]')
    if not isinstance(value, list):
        raise ValueError(f"expected a list of strings, found {_described(value)}")
    for item in value:
        if not isinstance(item, str):
            raise ValueError(f"expected a list of strings, found {_described(item)} in it")
    return tuple(value)


def _codes(value: Any) -> tuple[str, ...]:
    return split_codes(_strings(value))


def _confidence(value: Any) -> Confidence:
    names = [level.label for level in Confidence]
    if not isinstance(value, str) or value.lower() not in names:
        raise ValueError(f"expected one of {', '.join(names)}, found {_described(value)}")
    return Confidence[value.upper()]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {_described(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"expected a file's name, found {_described(value)}")
    return value


def _table(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a table of {what}, found {_described(value)}")
    return value


def _by_pattern(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    entries = _table(value, "patterns and lists of codes").items()
    return tuple((pattern, _item(pattern, _codes, codes)) for pattern, codes in entries)


def _severities(value: Any) -> tuple[tuple[str, Severity], ...]:
    entries = _table(value, "codes and severities").items()
    return tuple((code.upper(), _item(code, _severity, severity)) for code, severity in entries)


def _severity(value: Any) -> Severity:
    names = [severity.value for severity in Severity]
    if value not in names:
        raise ValueError(f"expected one of {', '.join(names)}, found {_described(value)}")
    return Severity(value)


def _item(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    """An entry of a table; the error about it knows its name."""
    try:
        return read(value)
    except ValueError as error:
        raise _ItemError(name, str(error)) from None


class _ItemError(ValueError):
    def __init__(self, item: str, message: str) -> None:
        super().__init__(message)
        self.keys = (item,)  # inside the table


def _profile(value: Any) -> dict[str, Any]:
    from cgsafe.profiles import validated

    return validated(value)


# Each key and the function that reads its value; a new key is one line here and one field in Config.
KEYS: dict[str, Callable[[Any], Any]] = {
    "select": _codes,
    "extend-select": _codes,
    "ignore": _codes,
    "per-file-ignores": _by_pattern,
    "exclude": _strings,
    "extend-exclude": _strings,
    "severity": _severities,
    "min-confidence": _confidence,
    "baseline": _text,
    "require-reason": _flag,
    "plugins": _strings,
    "profile": _profile,
    "hot-path": _flag,
}


# What counts where the configuration says nothing, as it would say it.
DEFAULTS: dict[str, Any] = {
    "select": [],
    "extend-select": [],
    "ignore": [],
    "per-file-ignores": {},
    "exclude": [],
    "extend-exclude": [],
    "severity": {},
    "min-confidence": Settings.min_confidence.label,
    "baseline": None,
    "require-reason": False,
    "plugins": None,
    "profile": {},
    "hot-path": False,
}


def load(start: str | None = None) -> Config:
    """The configuration that is in force in a folder: that of the nearest folder upward which has one.

    In one folder `cgsafe.toml` comes before `pyproject.toml`; a pyproject.toml without `[tool.cgsafe]` does not count.
    Nothing above the top of a git repository is looked at.
    """
    folder = os.path.abspath(start or os.getcwd())
    while True:
        for name in (OWN_FILE, SHARED_FILE):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and (config := _read(path)) is not None:
                return config
        parent = os.path.dirname(folder)
        if parent == folder or os.path.exists(os.path.join(folder, ".git")):
            return Config()
        folder = parent


def merge(
    config: Config,
    *,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    extend_select: tuple[str, ...] = (),
    min_confidence: Confidence | None = None,
    hot_path: bool = False,
    **others: Any,
) -> Settings:
    """Settings out of the configuration and the command line.

    `select` on the command line stands for the whole choice of rules and replaces the lists of the configuration; the
    others add to what the configuration says. Patterns of the configuration are relative to its file.
    """
    ignored = ignore if select else (config.ignore or ()) + ignore
    extended = extend_select if select else (config.extend_select or ()) + extend_select
    patterns = ((_rebased(config, [pattern])[0], codes) for pattern, codes in config.per_file_ignores or ())
    return Settings(
        select=select or config.select or (),
        ignore=tuple(dict.fromkeys(ignored)),
        extend_select=tuple(dict.fromkeys(extended)),
        exclude=tuple(
            dict.fromkeys((*_rebased(config, [*(config.exclude or ()), *(config.extend_exclude or ())]), *exclude))
        ),
        per_file_ignores=tuple(patterns),
        severity=dict(config.severity or ()),
        require_reason=bool(config.require_reason),
        hot_path=hot_path or config.hot_path or False,
        profile=json.dumps(config.profile, sort_keys=True) if config.profile else "",
        min_confidence=min_confidence or config.min_confidence or Settings.min_confidence,
        **others,
    )


def baseline_of(config: Config) -> str | None:
    """The baseline that the configuration names, relative to the working directory."""
    if config.baseline is None:
        return None
    return os.path.relpath(os.path.join(os.path.dirname(os.path.abspath(config.path)), config.baseline))


def _rebased(config: Config, patterns: list[str]) -> list[str]:
    """Patterns relative to the working directory instead of the configuration file."""
    if not patterns:
        return []
    base = os.path.relpath(os.path.dirname(os.path.abspath(config.path))).replace(os.sep, "/")
    if base == ".":
        return patterns
    rebased = []
    for pattern in patterns:
        negation, body = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
        anchored = "/" in body.rstrip("/")
        rebased.append(f"{negation}{base}/{body.lstrip('/')}" if anchored else pattern)
    return rebased


def _read(path: str) -> Config | None:
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise _error(path, 0, f"cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _error(path, 0, "not valid UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        message, line = _toml_place(str(error))
        raise _error(path, line, f"not valid TOML: {message}") from None
    except RecursionError:
        raise _error(path, 0, "not valid TOML: nested too deeply") from None
    except ValueError:  # a number of thousands of digits
        raise _error(path, 0, "not valid TOML: a number is too long") from None
    header = ""
    if os.path.basename(path) == SHARED_FILE:
        tool = data.get("tool")
        if not isinstance(tool, dict) or "cgsafe" not in tool:
            return None
        data, header = tool["cgsafe"], "tool.cgsafe"
        if not isinstance(data, dict):
            raise _error(path, 0, f"`tool.cgsafe`: expected a table, found {_described(data)}")
    lines = {key: _line_of(text, key, header) for key in data}
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in KEYS:
            raise _error(path, lines[key], f"unknown key `{key}`{_near(key, header)}")
        try:
            values[key.replace("-", "_")] = KEYS[key](value)
        except ValueError as error:
            inner: tuple[str, ...] = getattr(error, "keys", ())
            line = _deepest_line(text, (key, *inner), header) or lines[key]
            raise _error(path, line, f"`{'.'.join((key, *inner))}`: {error}") from None
    return Config(path=path, lines=lines, **values)


def _error(path: str, line: int, message: str) -> ConfigError:
    shown = os.path.relpath(path)
    return ConfigError(f"{shown}:{line}: {message}" if line else f"{shown}: {message}")


def _toml_place(message: str) -> tuple[str, int]:
    """The parser's message without its place, and the line of that place."""
    match = re.search(r" \(at line (\d+), column \d+\)$", message)
    return (message[: match.start()], int(match[1])) if match else (message, 0)


def _near(key: str, header: str) -> str:
    import difflib

    if key == "tool" and not header:
        return f"; in {OWN_FILE} the keys stand at the top, without `[tool.cgsafe]`"
    close = difflib.get_close_matches(key.replace("_", "-"), list(KEYS), n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; known are {', '.join(KEYS)}"


def _line_of(text: str, key: str, header: str) -> int:
    """The line on which a key of a table is set; 0 if it is written in a way that this search does not know."""
    wanted = re.compile(rf"""[ \t]*(?:{re.escape(key)}|"{re.escape(key)}"|'{re.escape(key)}')[ \t]*[=.]""")
    dotted = re.compile(rf"[ \t]*{re.escape(header)}\.{re.escape(key)}[ \t]*=") if header else wanted
    inside = not header
    for number, line in enumerate(text.split("\n"), 1):
        if (table := re.match(r"[ \t]*\[+([^\[\]]+)\]", line)) is not None:
            name = table[1].replace(" ", "")
            if name == f"{header}.{key}".strip("."):
                return number
            inside = name == header
        elif (inside and wanted.match(line)) or dotted.match(line):
            return number
    return 0


def _deepest_line(text: str, keys: tuple[str, ...], header: str) -> int:
    """The line of a key inside nested tables, or of the innermost table around it that can be found."""
    for depth in range(len(keys), 0, -1):
        for split in range(depth):  # `[header.a]` and `b.c = ...` below it, in every division
            table = ".".join(part for part in (header, *keys[: depth - 1 - split]) if part)
            if line := _line_of(text, ".".join(keys[depth - 1 - split : depth]), table):
                return line
    return 0


def _described(value: Any) -> str:
    """A value of a configuration, as a reader of the file would name it."""
    names = {bool: "a boolean", int: "an integer", float: "a number", list: "a list", dict: "a table"}
    return f'"{value}"' if isinstance(value, str) else names.get(type(value), "a date or time")
