"""The walk's view of the knowledge tables: one object that answers its questions quickly."""

from __future__ import annotations

import ast
import copy
import fnmatch
import os
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from cgsafe.events import Region
from cgsafe.knowledge import load, tables
from cgsafe.marks import is_cut
from cgsafe.profiles import merged, special_packages
from cgsafe.values import (
    BOOL,
    FALSE,
    TRUE,
    UNKNOWN,
    Answer,
    Dict,
    Ext,
    ExtInstance,
    Host,
    Value,
)

_ENUMS = ("enum.", "Enum")
TENSOR_CLASSES = frozenset(("torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"))
_PREDICATES = ("is_", "has_", "can_", "supports_")  # starts of names that hold an answer


class Facts:
    """Everything that the walk looks up by name."""

    def __init__(self, added: str = "", package: str = "") -> None:
        known = tables()
        self.functions = known.functions
        self.methods = known.methods
        self.attributes = known.attributes
        self.modules = known.modules
        self.losses = known.losses
        self.containers = known.containers
        self.weighted = known.weighted
        self.numpy = known.numpy
        self.object_methods = known.objects
        self.object_classes = frozenset(name.rpartition(".")[0] for name in known.objects)
        self._only_tensor = known.only_tensor
        calls = load("calls")
        self.capture_contexts = frozenset(calls["capture"]["contexts"])
        self.constructed = frozenset(calls["capture"]["graphs"])
        self.graph_makers = frozenset(calls["capture"]["makers"])
        self.waits = frozenset(calls["waits"]["functions"])
        self.waiting_methods: dict[str, list[str]] = {c: calls["waits"][c] for c in ("Event", "Stream")}
        self.sized_methods = frozenset(calls["arguments"]["sizes"])
        self.conversions = frozenset(calls["arguments"]["conversions"])
        self.filling_methods = frozenset(calls["arguments"]["fills"])
        self.filling_functions = frozenset(f"torch.{name}" for name in calls["arguments"]["fills"])
        self.checkpoint_options = frozenset(calls["arguments"]["checkpoint"])
        self.read_arguments: dict[str, tuple[int, str]] = {name: (at, by) for name, (at, by) in calls["reads"].items()}
        self.number_arguments: dict[str, list[tuple[int, str]]] = {
            name: [(at, by) for at, by in places] for name, places in calls["numbers"].items()
        }
        self._module_tensors = frozenset(calls["module"]["tensors"])
        self.chained_methods = frozenset(calls["module"]["chained"])  # of a module: they give the module itself
        self._module_methods = self.chained_methods | frozenset(calls["module"]["methods"])
        self.host_attributes: dict[str, str] = calls["of_unknown"]
        self._constants = {name: _constant(kind) for name, kind in calls["attributes"].items()}
        self._dtypes: dict[str, list[str]] = calls["dtypes"]
        self._float_names = tuple(calls["dtypes"]["float_prefixes"])
        library = calls["library"]
        self.identity_functions = frozenset(library["identity"])
        self.like_first = frozenset(library["like_first"])
        self.host_modules = tuple(library["host"])
        self.whole_reads = frozenset(library["whole_reads"])
        self.math_ints = frozenset(library["math_ints"])
        self._container_methods = frozenset(calls["container"]["methods"])
        self.allocators = frozenset(calls["allocates"]["functions"])
        self.caches = frozenset(calls["allocates"]["caches"])
        frozen = calls["frozen"]
        self._setup = tuple(frozen["setup"])
        self.frozen_calls: dict[str, str] = {n: kind for kind, names in frozen["functions"].items() for n in names}
        self._frozen_starts: dict[str, str] = {n: k for k, names in frozen["packages"].items() for n in names}
        self.frozen_methods: dict[str, str] = {n: kind for kind, names in frozen["methods"].items() for n in names}
        self._profile(merged(added, package))
        self.debug = bool(os.environ.get("CGSAFE_DEBUG"))

    def _profile(self, profile: dict[str, Any]) -> None:
        """Take over what frameworks mean by their names."""
        roots, functions, decorators = profile["roots"], profile["functions"], profile["decorators"]
        self._bases = tuple(roots["module_bases"])
        self._not_captured_modules = tuple(roots["not_captured_modules"])
        self._not_captured_classes = tuple(roots["not_captured_classes"])
        self.not_run = tuple(roots["not_run"])
        self.host_only_folders = frozenset(roots["host_only_folders"])
        self.root_patterns: dict[str, tuple[str, ...]] = {
            kind: tuple(roots[kind]) for kind in ("captured", "compiled", "hot_path")
        }
        self.needs: dict[str, str] = roots["needs"]
        self.host_setup = frozenset(functions["host_setup"])
        self.warm_up = frozenset(functions["warm_up"])
        self.current_streams = frozenset(functions["current_stream"])
        self.eager = frozenset(name for name in functions["eager"] if "." not in name)
        self.eager_places = tuple(name for name in functions["eager"] if "." in name)
        self.loading = tuple(functions["loading"])
        self._placed: dict[Any, bool] = {}
        self._warmed = tuple(roots["warmed"])
        self._captured_modules = tuple(roots["captured_modules"])
        self.warms = bool(self._warmed)
        self._warmed_apart = tuple(roots["warmed_apart"])
        self.compiled_classes = frozenset(decorators["compiled_classes"])
        self.eager_breaks = frozenset(decorators["eager_breaks"])
        self._break_names = tuple(decorators["eager_break_names"])
        self.transparent = frozenset(decorators["transparent"])
        self.kernels = frozenset(decorators["kernels"])
        self.autotuners = frozenset(decorators["autotuners"])
        self.sync_allowed = frozenset(profile["contexts"]["sync_allowed"])
        self.accepting_comments = tuple(profile["contexts"]["comments"])
        self.op_registrars = frozenset(profile["custom_ops"]["registrars"])
        # Those of whose calls the index, which is made before any profile is known, keeps no lines.
        self.unusual_registrars = tuple(sorted(n for n in self.op_registrars if "custom_op" not in n))
        self.op_decorators = frozenset(profile["custom_ops"]["decorators"])
        self.splitting_ops = frozenset(profile["custom_ops"]["splitting"])
        self.elsewhere = frozenset(profile["dispatch"]["elsewhere"])
        self.dispatched: dict[str, list[str]] = profile["dispatch"]["by_name"]
        self.host_objects = frozenset(profile["objects"]["host"])
        self.fields: dict[str, dict[str, str]] = profile["objects"]["fields"]
        self.field_names = frozenset(name for fields in self.fields.values() for name in fields)
        self._external_guards: dict[str, Any] = profile["guards"]["external"]
        self._named_guards: dict[str, Any] = profile["guards"]["named"]
        self._class_guards: dict[str, dict[str, Any]] = profile["guards"]["in_classes"]
        self.class_guards = frozenset(n.rpartition(".")[2] for answers in self._class_guards.values() for n in answers)
        self._names: dict[str, str] = profile["names"]
        host = profile["host_names"]
        self._host_ends = (tuple(host["suffixes"]), tuple(host["prefixes"]))
        self._names_host: dict[str, bool] = {}
        self.declared_by: tuple[str, ...] = tuple(host["declared_by"])
        self.declared: frozenset[str] = frozenset()  # names that the code around a module declares to be on the host
        self._numpy_ends = (tuple(host["numpy_suffixes"]), tuple(host["numpy_prefixes"]))
        self.stream_idiom = tuple(profile["idioms"]["current_stream"])
        self.mask_suffixes = tuple(profile["tensor_names"]["mask_suffixes"])
        self.library_waits = tuple(profile["libraries"]["waits"])
        self.waiting_classes = tuple(name.rpartition(".")[0] for name in self.library_waits)
        self.fixed = frozenset(profile["objects"]["fixed"])
        self.doubted_dtypes = frozenset(profile["doubts"]["dtypes"])
        self.switches = tuple(profile["doubts"]["switches"])
        self.doubted_flags = frozenset(profile["doubts"]["attributes"])
        self.doubted_arguments = frozenset(profile["doubts"]["arguments"])
        self.given_arguments = frozenset(profile["doubts"]["given"])

    # -- names -----------------------------------------------------------------------------------------------------

    @staticmethod
    @cache
    def canonical(name: str) -> str:
        """The one spelling of an external name that has several."""
        for prefix, replacement in load("calls")["aliases"].items():
            if name.startswith(prefix):
                return replacement + name[len(prefix) :]
        if name.startswith("torch.nn.modules.") and name.rpartition(".")[2][:1].isupper():
            return "torch.nn." + name.rpartition(".")[2]
        return name

    def external_attribute(self, base: str, name: str) -> Value:
        full = self.canonical(f"{base}.{name}")
        known = self._constants.get(full)
        if known is not None:
            return known
        return Ext(full)

    def names_host(self, name: str) -> bool:
        """True where a name says that its value lives on the host."""
        found = self._names_host.get(name)
        if found is None:
            if name.startswith(_PREDICATES) or name in self._named_guards:
                # `is_cpu` asks for a place, and holds nothing; a whole name is meant so.
                found = name in self._host_ends[0]
            else:
                ends, starts = self._host_ends
                found = name in self.declared or name.endswith(ends) or name.startswith(starts)
            self._names_host[name] = found
        return found

    def declaring(self, names: frozenset[str]) -> Facts:
        """The same, where some names were declared to be on the host."""
        other = copy.copy(self)
        other.declared = names - self._names.keys()
        other._names_host = {}
        return other

    def convention(self, name: str) -> str | None:
        """What a bare name means: "tensor", "tensor:int", "cpu", "numpy", a host type, or None."""
        if self.names_host(name) and not (name in self.declared and name.startswith("num_")):
            return "cpu"  # elsewhere most counts are numbers, whatever one field is
        if name.endswith(self._numpy_ends[0]) or name.startswith(self._numpy_ends[1]):
            return "numpy"
        return self._names.get(name)

    def accepting_mark(self, line: str) -> str:
        """The comment on a line by which its author accepts a wait for the GPU; "" where there is none."""
        if "#" not in line:
            return ""
        comment = line.partition("#")[2]
        return next((f"# {mark}" for mark in self.accepting_comments if mark in comment), "")

    def field_kind(self, classes: Iterable[str], name: str) -> str | None:
        """What a profile says of an attribute of an object of one of these classes (bare names)."""
        for cls in classes:
            kind = self.fields.get(cls, {}).get(name)
            if kind is not None:
                return kind
        return None

    def only_tensors_have(self, name: str) -> str | None:
        """ "method" or "attribute" where only tensors have something of that name."""
        if name in self._only_tensor:
            return "method" if name in self.methods else "attribute"
        return None

    def compiles_class(self, definition: Any) -> bool:
        """True where a class decorator compiles the forward."""
        return any(d.rpartition(".")[2] in self.compiled_classes for d in definition.decorators)

    def is_module_base(self, name: str) -> bool:
        return matches(name, self._bases)

    def module_attribute(self, name: str) -> str | None:
        """What torch.nn.Module and its layers have under a name: "bool", "tensor" or "method"."""
        if name == "training":
            return "bool"
        if name in self._module_tensors:
            return "tensor"
        return "method" if name in self._module_methods else None

    def is_host_container_method(self, name: str) -> bool:
        return name in self._container_methods

    def is_enum(self, externals: list[str]) -> bool:
        return any(e.startswith(_ENUMS[0]) or e.endswith(_ENUMS[1]) for e in externals)

    def container_kind(self, name: str) -> str:
        if name == "torch.nn.Sequential":
            return "sequential"
        if name in ("torch.nn.ModuleList", "torch.nn.ParameterList"):
            return "list"
        if name in ("torch.nn.ModuleDict", "torch.nn.ParameterDict"):
            return "dict"
        return ""

    def module_container(self, externals: list[str]) -> str:
        for name in externals:
            kind = self.container_kind(name)
            if kind:
                return kind
        return ""

    # -- verdicts --------------------------------------------------------------------------------------------------

    def _answer(self, answer: Any, region: Region) -> Value:
        if answer is True or answer is False:
            return TRUE if answer else FALSE
        if answer == "captured":
            return TRUE if region.captured and not region.hot else FALSE
        if answer == "traced":
            return TRUE if region.traced else FALSE
        if answer == "either":
            return TRUE if (region.captured and not region.hot) or region.traced else FALSE
        return BOOL

    def external_verdict(self, name: str, region: Region) -> Value | None:
        """The answer of a predicate outside the checked code; None where it is none."""
        answer = self._external_guards.get(name)
        if answer is None:
            return None
        return self._answer(answer, region)

    def function_verdict(self, definition: Any, region: Region) -> Value | str | None:
        """The answer of a known predicate of the checked code, "cut" for code that runs outside, None for the rest."""
        answer = self._named_guards.get(definition.name)
        if answer is not None:
            return self._answer(answer, region)
        if definition.name in self.host_setup or definition.name in self.elsewhere or definition.name in self.warm_up:
            return "cut"
        if definition.name in self.current_streams and region.captured:
            return ExtInstance("torch.cuda.Stream", "current_stream")
        if (region.captured or region.traced) and not region.hot and is_cut(definition):
            return "cut"
        if region.captured and not region.hot:
            if definition.name in self.eager:
                return "cut"
            if self.eager_places and not region.explicit and self.runs_eagerly(definition):
                return "cut"
        if definition.name in self.sync_allowed:
            return ExtInstance("cgsafe.sync-allowed")
        for decorator in definition.decorators:
            last = decorator.rpartition(".")[2]
            if last in self.eager_breaks and region.captured and not region.hot:
                return "eager-break"
            if decorator in self.kernels or last in self.kernels:
                return "cut"
        # What such a decorator puts around a function, also where it is called instead of written above one.
        outer = definition.outer
        while outer is not None:
            if outer.name in self.eager_breaks and region.captured and not region.hot:
                return "eager-break"
            outer = outer.outer
        return None

    def runs_eagerly(self, definition: Any) -> bool:
        """True for functions that run outside of the graph by `Class.method` or by full dotted name."""
        found = self._placed.get(definition)
        if found is None:
            names = (definition.qualname, f"{definition.file.module}.{definition.qualname}")
            found = self._placed[definition] = any(matches(name, self.eager_places) for name in names)
        return found

    def warmed(self, module: str) -> bool:
        """True where a framework runs what it captures before, with the very arguments of the capture."""
        return bool(self._warmed) and matches(module, self._warmed)

    def known_to_be_captured(self, module: str) -> bool:
        """False where a framework says which modules it captures, and this is none of them."""
        return not self._captured_modules or matches(module, self._captured_modules)

    def warmed_apart(self, module: str) -> bool:
        """True where a framework runs what it captures before, in a run of the same shapes that is prepared apart."""
        return bool(self._warmed_apart) and matches(module, self._warmed_apart)

    def not_captured_by(self, module: str, cls: str) -> str:
        """Which habit of a framework says that the forward of a class runs outside of captures; "" where none does."""
        for kind, name, patterns in (
            ("modules", module, self._not_captured_modules),
            ("classes", cls, self._not_captured_classes),
        ):
            if matches(name, patterns):
                pattern = next(p for p in patterns if matches(name, (p,)))
                return f"by profile, {kind} named `{pattern}` run outside of captures"
        return ""

    def is_run(self, path: str) -> bool:
        """False for files that are templates of others."""
        name = os.path.basename(path)
        return not any(fnmatch.fnmatchcase(name, p) for p in self.not_run)

    def named_verdict(self, name: str, region: Region) -> Value | None:
        """The answer of a predicate of which only the bare name is known."""
        answer = self._named_guards.get(name)
        return None if answer is None else self._answer(answer, region)

    def answer_in(self, cls: str, name: str, call: Any, region: Region) -> Value | None:
        """The answer of a predicate under capture in the methods of a class, by patterns of its name."""
        if not region.captured or region.explicit or region.hot:
            return None
        function = call.func if isinstance(call, ast.Call) else None
        owner = function.value if isinstance(function, ast.Attribute) else None
        of = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        given = self._class_answer(cls, f"{of}.{name}") if of else None
        if given is None:
            given = self._class_answer(cls, name)
        if given not in ("seldom", "usually"):
            return None if given is None else self._answer(given, region)
        asked = f"only where `{ast.unparse(call) if function is not None else name}` is "
        return Answer(f"{asked}true", "") if given == "seldom" else Answer("", f"{asked}false")  # type: ignore[no-any-return]

    def _class_answer(self, cls: str, name: str) -> Any:
        """What the first pattern that a class fits says of a predicate; None where none does."""
        return next((a[name] for p, a in self._class_guards.items() if name in a and matches(cls, (p,))), None)

    def never_returns(self, node: ast.expr) -> bool:
        """`sys.exit()` and its like as a statement."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        return (
            node.func.attr in ("exit", "_exit")
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("sys", "os")
        )

    def frozen_call(self, name: str) -> str:
        """What a call outside the checked code leaves as it was when a graph was recorded; "" for most."""
        return self.frozen_calls.get(name) or self._frozen_starts.get(name.rpartition(".")[0], "")

    def breaks_graph(self, decorator: str) -> bool:
        """True for a decorator, by its name, that makes a function run between graphs."""
        last = decorator.rpartition(".")[2]
        return last in self.eager_breaks or matches(last, self._break_names)

    def sets_up(self, name: str) -> bool:
        """True for methods that run once, before anything is captured, by their name."""
        return matches(name, self._setup)

    # -- dtypes and numpy --------------------------------------------------------------------------------------------

    def is_dtype(self, value: Value) -> bool:
        if isinstance(value, Host):
            return value.kind == "dtype"
        return isinstance(value, Ext) and value.name.startswith("torch.") and self.dtype_kind(value) != ""

    def dtype_kind(self, value: Value) -> str:
        """ "b", "i", "f" or "" of a dtype."""
        if not isinstance(value, Ext):
            return ""
        last = value.name.rpartition(".")[2]
        if last in self._dtypes["bool"]:
            return "b"
        if last in self._dtypes["int"]:
            return "i"
        return "f" if last.startswith(self._float_names) else ""

    def numpy_result(self, name: str) -> Value | None:
        from cgsafe.knowledge import parse_entry

        text = self.numpy.get(name)
        if text is None:
            return None
        spec = parse_entry(text).returns
        return Host(spec.dtype) if spec.kind == "host" and spec.dtype in ("int", "float", "bool", "str") else None


@cache
def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """True where one of the patterns, in which `*` stands for any text, is the name."""
    return bool(patterns) and _pattern(patterns).match(name) is not None


@cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)))


def _constant(kind: bool | str) -> Value:
    """What an attribute of a package holds, as the table says it."""
    if isinstance(kind, bool):
        return TRUE if kind else FALSE
    head, _, element = kind.partition(":")
    if head == "dict":
        return Dict({}, Host(element))
    return UNKNOWN if kind == "unknown" else Host(kind)


class FactsByPackage:
    """The facts that count in each package: most packages share one view."""

    def __init__(self, added: str = "") -> None:
        self.general = facts(added, "")
        self._added = added
        self._special = special_packages(added)
        self._known: dict[str, Facts] = {}
        self.declared: Callable[[str, tuple[str, ...]], frozenset[str]] | None = None  # by module and `declared_by`
        self._declaring: dict[tuple[int, frozenset[str]], Facts] = {}

    def around(self, module: str) -> Facts:
        """What counts in the package of a module, by its dotted name."""
        package = module.partition(".")[0]
        return facts(self._added, package) if package in self._special else self.general

    def of(self, module: str) -> Facts:
        """What counts in a module: as in its package, and by what the code around it declares."""
        found = self._known.get(module)
        if found is None:
            found = self.around(module)
            if found.declared_by and self.declared is not None:
                names = self.declared(module, found.declared_by)
                if names:
                    key = (id(found), names)
                    found = self._declaring.get(key) or self._declaring.setdefault(key, found.declaring(names))
            self._known[module] = found
        return found


@cache
def facts(added: str, package: str) -> Facts:
    return Facts(added, package)
