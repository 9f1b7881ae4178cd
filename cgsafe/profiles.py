"""Framework profiles: what frameworks mean by their own names, as data that a project can add to.

The profiles that come with the tool lie in `knowledge/profiles/`, one file for each framework; a project adds its own
under `[tool.cgsafe.profile]`. All speak the language of `SCHEMA`, and all are merged: lists grow, later entries of
tables replace earlier ones. A profile counts everywhere, unless it says `applies_to = ["package"]`; what stands under
`[within.PACKAGE]` counts in that package only.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from functools import cache
from typing import Any

from cgsafe.knowledge import FOLDER, load

ANSWERS = (True, False, "captured", "traced", "either", "unknown", "usually", "seldom")
KINDS = (
    "tensor",
    "tensor:int",
    "tensor:bool",
    "tensor:float",
    "cpu",
    "numpy",
    "int",
    "float",
    "bool",
    "str",
    "list",
    "tuple",
    "object",
    "none",
    "maybe-tensor",
)


class ProfileError(ValueError):
    """Something in a profile that cannot be used; `keys` leads to it."""

    def __init__(self, keys: tuple[str, ...], message: str):
        super().__init__(message)
        self.keys = keys


def _names(value: Any, keys: tuple[str, ...]) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        hint = f'; write ["{value}"]' if isinstance(value, str) else ""
        raise ProfileError(keys, f"expected a list of names{hint}")
    return list(value)


def _lists(value: Any, keys: tuple[str, ...]) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise ProfileError(keys, "expected a table of names")
    return {name: _names(entry, (*keys, name)) for name, entry in value.items()}


def _table(value: Any, keys: tuple[str, ...], allowed: tuple[Any, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(keys, "expected a table of names")
    for name, entry in value.items():
        if not any(entry is a or (isinstance(a, str) and entry == a) for a in allowed):
            told = ", ".join(str(a).lower() if isinstance(a, bool) else f'"{a}"' for a in allowed)
            raise ProfileError((*keys, name), f"expected one of {told}")
    return dict(value)


def _answers(value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return _table(value, keys, ANSWERS)


def _answers_in(value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(keys, "expected a table of patterns")
    return {pattern: _answers(answers, (*keys, pattern)) for pattern, answers in value.items()}


def _kinds(value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return _table(value, keys, KINDS)


def _fields(value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(keys, "expected a table of classes")
    return {name: _kinds(fields, (*keys, name)) for name, fields in value.items()}


def _idiom(value: Any, keys: tuple[str, ...]) -> list[str]:
    names = _names(value, keys)
    if len(names) != 2:
        raise ProfileError(keys, "expected an expression and the import that it needs")
    return names


def _declaration(value: Any, keys: tuple[str, ...]) -> list[str]:
    names = _names(value, keys)
    if len(names) != 2:
        raise ProfileError(keys, "expected the name of a class and an argument")
    return names


def _pairs(value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(other, str) and other for other in value.values()):
        raise ProfileError(keys, "expected a table of names")
    return dict(value)


Reader = Callable[[Any, tuple[str, ...]], Any]
SCHEMA: dict[str, dict[str, Reader]] = {
    "roots": {
        **dict.fromkeys(
            (
                "captured",
                "captured_modules",
                "compiled",
                "hot_path",
                "module_bases",
                "not_captured_modules",
                "not_captured_classes",
                "not_run",
                "warmed",
                "warmed_apart",
                "host_only_folders",
            ),
            _names,
        ),
        "needs": _pairs,
    },
    "functions": dict.fromkeys(("host_setup", "warm_up", "current_stream", "eager", "loading"), _names),
    "decorators": dict.fromkeys(
        ("compiled_classes", "eager_breaks", "eager_break_names", "kernels", "autotuners", "transparent"), _names
    ),
    "contexts": dict.fromkeys(("sync_allowed", "comments"), _names),
    "custom_ops": dict.fromkeys(("registrars", "decorators", "splitting"), _names),
    "dispatch": {"elsewhere": _names, "by_name": _lists},
    "objects": {"host": _names, "fixed": _names, "fields": _fields},
    "host_names": {
        **dict.fromkeys(("prefixes", "suffixes", "numpy_prefixes", "numpy_suffixes"), _names),
        "declared_by": _declaration,
    },
    "tensor_names": {"mask_suffixes": _names},
    "guards": {"external": _answers, "in_classes": _answers_in, "named": _answers},
    "idioms": {"current_stream": _idiom},
    "doubts": dict.fromkeys(("arguments", "attributes", "dtypes", "given", "switches"), _names),
    "libraries": {"waits": _names},
}
FREE: dict[str, Reader] = {"names": _kinds}  # sections whose keys are the names themselves
SECTIONS = (*SCHEMA, *FREE)


def validated(data: Any, keys: tuple[str, ...] = (), top: bool = True) -> dict[str, Any]:
    """A profile as the tables understand it; ProfileError tells what is wrong with it. Dashes count as underscores."""
    if not isinstance(data, dict):
        raise ProfileError(keys, "expected a table")
    result: dict[str, Any] = {}
    for name, value in data.items():
        section = name.replace("-", "_")
        here = (*keys, name)
        if top and section == "applies_to":
            result[section] = _names(value, here)
        elif top and section == "within":
            if not isinstance(value, dict):
                raise ProfileError(here, "expected a table of packages")
            result[section] = {p: validated(part, (*here, p), False) for p, part in value.items()}
        elif section in FREE:
            result[section] = FREE[section](value, here)
        elif section in SCHEMA:
            result[section] = _section(SCHEMA[section], value, here)
        else:
            known = [*SECTIONS, *(("applies_to", "within") if top else ())]
            raise ProfileError(here, f"unknown key `{name}`{_near(section, known)}")
    return result


def _section(schema: dict[str, Reader], value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(keys, f"expected a table with {', '.join(schema)}")
    result = {}
    for name, entry in value.items():
        key = name.replace("-", "_")
        if key not in schema:
            raise ProfileError((*keys, name), f"unknown key `{name}`{_near(key, list(schema))}")
        result[key] = schema[key](entry, (*keys, name))
    return result


def _near(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; known are {', '.join(known)}"


def shipped() -> list[str]:
    """The names of the profiles that come with the tool, the common one first."""
    names = sorted(path.stem for path in (FOLDER / "profiles").glob("*.toml"))
    return sorted(names, key=lambda name: name != "common")


@cache
def _layers(added: str) -> list[tuple[frozenset[str] | None, dict[str, Any]]]:
    """Each part of each profile with the packages that it counts in (None: everywhere), weakest first."""
    profiles = [load(f"profiles/{name}") for name in shipped()]
    if added:
        profiles.append(json.loads(added))
    layers: list[tuple[frozenset[str] | None, dict[str, Any]]] = []
    inner: list[tuple[frozenset[str] | None, dict[str, Any]]] = []
    for profile in profiles:
        packages = frozenset(profile["applies_to"]) if "applies_to" in profile else None
        layers.append((packages, profile))
        inner.extend((frozenset((package,)), part) for package, part in profile.get("within", {}).items())
    return [*layers, *inner]


def special_packages(added: str) -> frozenset[str]:
    """The packages in which other things count than elsewhere."""
    return frozenset(package for packages, _ in _layers(added) for package in packages or ())


@cache
def merged(added: str, package: str) -> dict[str, Any]:
    """What counts in a package ("" for one that no profile names): every section and key, empty where nothing is said.

    `added` is the project's own profile as JSON text, as Settings holds it.
    """
    result: dict[str, Any] = {
        section: {
            key: {} if reader in (_answers, _answers_in, _fields, _lists, _pairs) else []
            for key, reader in schema.items()
        }
        for section, schema in SCHEMA.items()
    }
    result.update({section: {} for section in FREE})
    for packages, profile in _layers(added):
        if packages is not None and package not in packages:
            continue
        for section in SECTIONS:
            _merge(result[section], profile.get(section, {}))
    return result


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        held = into.get(key)
        if isinstance(held, list) and key != "current_stream":
            held.extend(item for item in value if item not in held)
        elif isinstance(held, dict) and isinstance(value, dict):
            for name, entry in value.items():
                held[name] = {**held.get(name, {}), **entry} if isinstance(entry, dict) else entry
        else:
            into[key] = value
