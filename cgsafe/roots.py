"""Capture roots: where captured code starts, and why each of them counts as one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cgsafe.events import HOST, region
from cgsafe.findings import Root
from cgsafe.index.trail import TRAIL, Cell
from cgsafe.marks import is_cut
from cgsafe.site_events import REGISTERS
from cgsafe.values import FALSE, Class, Compiled, Func, Instance, Value, parts_of
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.defs import ClassDef, FunctionDef
from cgsafe.walk.entry import root_arguments
from cgsafe.walk.facts import matches
from cgsafe.walk.walker import Node, Walker

MAX_RECEIVERS = 40  # classes that inherit a method which a profile names
SITE_DEPTH = 6  # calls of host code that are followed on the way to a capture
FORWARD = region(True)
COMPILED_FORWARD = region(True, traced=True)
GRAPHED = region(True, explicit=True)
COMPILED = region(True, traced=True, explicit=True)
# Functions that a profile names: kind of candidate -> region, kind of root, and why it is one.
NAMED = {
    "captured": (FORWARD, "profile", "a profile says that `{}` is captured"),
    "compiled": (COMPILED_FORWARD, "profile", "a profile says that `{}` is compiled and captured"),
    "hot_path": (region(True, hot=True), "hot-path", "by profile, `{}` runs at every step"),
}


@dataclass(frozen=True)
class Start:
    """A root and the node of the walk's graph where it starts."""

    root: Root
    node: Node
    explicit: bool
    warm: frozenset[Any] = frozenset()  # compiled calls that the host made before
    given: frozenset[Any] = frozenset()  # states of the objects, no modules, that the captured call gets as arguments
    lacks: frozenset[str] = frozenset()  # class attributes that are false there: see `roots.needs` of the knowledge
    warmed: bool = False  # by profile, the very call is made before the capture
    warmed_apart: bool = False  # by profile, a run of the same shapes that is prepared apart comes before the capture
    module: ClassDef | None = None  # whose forward counts as captured
    guess: str = ""  # why it is a guess that this is captured at all


@dataclass(frozen=True)
class Candidate:
    """Something that may be a root, named so that it can be shared out among processes: (path, kind, qualified name)."""

    path: str
    kind: str  # "module", "site", "around", or a key of NAMED
    name: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.path, self.kind, self.name)


def module_candidates(walker: Walker, paths: Iterable[str]) -> list[Candidate]:
    """The classes whose forward counts as captured, as far as names tell."""
    found = []
    for path in sorted(paths):
        file = walker.project.files[path]
        if _host_only(walker, file):
            continue
        tables = walker.by_package.around(file.module)
        for qualified, info in file.index["classes"].items():
            if tables.not_captured_by(file.module, qualified.rpartition(".")[2]):
                continue
            if "forward" in info["methods"] or info["bases"]:
                found.append(Candidate(path, "module", qualified))
    return found


def named_candidates(walker: Walker, paths: Iterable[str], kinds: Iterable[str]) -> list[Candidate]:
    """The functions that profiles name, by `Class.method` or by full dotted name; `*` matches any text."""
    found = []
    for path in sorted(paths):
        file = walker.project.files[path]
        tables = walker.by_package.around(file.module)
        patterns = [(kind, tables.root_patterns[kind]) for kind in kinds if tables.root_patterns[kind]]
        if not patterns or _host_only(walker, file):
            continue
        for qualified in file.index["functions"]:
            for kind, wanted in patterns:
                if matches(qualified, wanted) or matches(f"{file.module}.{qualified}", wanted):
                    found.append(Candidate(path, kind, qualified))
    return found


def start_named(walker: Walker, candidate: Candidate) -> Start | None:
    """Walk a function that a profile names."""
    where, kind, reason = NAMED[candidate.kind]
    file = walker.project.files[candidate.path]
    definition = walker.definitions.function(file, candidate.name)
    if _is_stub(walker, definition):
        return None
    try:
        calls = [root_arguments(walker, definition, receiver, where) for receiver in _receivers(walker, definition)]
    except (SyntaxError, ValueError, RecursionError):
        return None
    root = Root(kind, reason.format(definition.qualname), file.path, definition.line, definition.qualname)
    node = Node(definition, where, (), None)
    frame = _entry_frame(walker, node, file)
    for args in calls:
        frame.call_value(walker.decorated(definition, None), args, _Anchor(definition.line))
    return Start(root, node, False)


def _receivers(walker: Walker, definition: FunctionDef) -> list[Value | None]:
    """What a method may be called on: objects of its class, and of those below it that keep the method."""
    first = _receiver(walker, definition)
    if definition.cls is None or not isinstance(first, Instance):
        return [first]
    found: list[ClassDef] = [definition.cls]
    for cls in found:
        for below in walker.classes.subclasses(cls):
            kept = walker.classes.find(below, definition.name)
            if below not in found and kept is not None and kept[1] is definition and len(found) < MAX_RECEIVERS:
                found.append(below)
    return [walker.classes.generic(cls) for cls in found]


def _receiver(walker: Walker, definition: FunctionDef) -> Value | None:
    """What a method is called on."""
    from cgsafe.walk.attributes import binding

    owner = definition.cls
    if owner is None:
        return None
    kind = binding(definition)
    return walker.classes.generic(owner) if kind == "instance" else Class(owner) if kind == "class" else None


def _host_only(walker: Walker, file: Any) -> bool:
    return folder_refusal(walker, file) != ""


def instantiated_names(walker: Walker) -> frozenset[str]:
    """All capitalised names that some known file calls."""
    names: set[str] = set()
    for file in walker.project.files.values():
        if not _host_only(walker, file):
            names.update(file.index["instantiates"])
    return frozenset(names)


def site_candidates(walker: Walker, paths: Iterable[str]) -> list[Candidate]:
    """Functions, and module bodies ("" as name), whose text may open a capture."""
    found: list[Candidate] = []
    paths_set = set(paths)
    for path in sorted(paths_set):
        file = walker.project.files[path]
        capture_lines = file.index["triggers"].get("capture", ())
        spans = sorted((first, last, name) for name, (first, _, last, _, _) in file.index["functions"].items())
        names: set[str] = set()
        for line in capture_lines:
            holders = [name for first, last, name in spans if first <= line <= last]
            names.add(holders[-1] if holders else "")
        if capture_lines:
            names.add("")
        names.update(_users_of_aliases(walker, file, spans, capture_lines))
        found.extend(Candidate(path, "site", name) for name in sorted(names))
    present = set(found)
    for candidate in list(found):
        for caller in _callers(walker, candidate, paths_set):
            if caller not in present:
                present.add(caller)
                found.append(caller)
    return sorted(found, key=lambda c: c.key)


def around_candidates(walker: Walker, paths: Iterable[str]) -> list[Candidate]:
    """Files whose host code captures, replays or calls what records graphs."""
    files = walker.project.files
    chosen = {p for p in paths if "around" in files[p].index["triggers"]}
    made = around_names(files[p] for p in chosen)
    if made:
        for path in paths:
            for module, attribute, level in files[path].index["imports"].values():
                if attribute in made and path not in chosen:
                    absolute = walker.project.absolute(files[path], module, level)
                    target = walker.project.find_module(absolute, files[path])
                    if target is not None and target.path in made[attribute]:
                        chosen.add(path)
    return [Candidate(p, "around", "") for p in sorted(chosen) if walker.tables.is_run(p)]


def around_names(files: Iterable[Any]) -> dict[str, set[str]]:
    """Name -> paths of the files that define it with a word that has to do with graphs."""
    made: dict[str, set[str]] = {}
    for file in files:
        index = file.index
        lines = index["triggers"].get("around", ())
        if not lines:
            continue
        spans = [(name, first, last) for name, (first, _, last, _, _) in index["functions"].items() if "." not in name]
        spans += [(name, first, last) for name, places in index["names"].items() for first, last in places]
        for name, first, last in spans:
            if any(first <= line <= last for line in lines):
                made.setdefault(name, set()).add(file.path)
    return made


def _users_of_aliases(walker: Walker, file: Any, spans: list[Any], lines: Any) -> set[str]:
    """Functions that use another name of `torch.cuda.graph`, made at the top of the file."""
    aliases = [
        local
        for local, (module, attribute, _) in file.index["imports"].items()
        if attribute in ("graph", "make_graphed_callables") and module.startswith("torch.cuda")
    ]
    for name, places in file.index["names"].items():
        if any(first <= line <= last for first, last in places for line in lines):
            aliases.append(name)
    if not aliases:
        return set()
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, aliases)) + r")\b")
    text = walker.text(file).lines
    return {name for first, last, name in spans if pattern.search("\n".join(text[first:last]))}


def _callers(walker: Walker, candidate: Candidate, paths: set[str]) -> list[Candidate]:
    """Functions that call one which opens a capture: they know what is captured."""
    file = walker.project.files[candidate.path]
    if not candidate.name:
        return []
    name = called_as(file, candidate.name)
    if not name:
        return _callers_of_method(walker, file, candidate.name)
    found = []
    called: dict[str, list[str]] = {}
    for importer, local in walker.project.importers(name):
        called.setdefault(importer.path, []).append(local)
    called.setdefault(file.path, []).append(name)
    for path in sorted(paths & called.keys()):
        other = walker.project.files[path]
        locals_ = called[path]
        pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, locals_)) + r")\(")
        text = walker.text(other).lines
        for qualified, (first, _, last, _, _) in other.index["functions"].items():
            if not (other is file and qualified == candidate.name) and pattern.search("\n".join(text[first:last])):
                found.append(Candidate(path, "site", qualified))
        found.append(Candidate(path, "site", ""))
    return found


def _callers_of_method(walker: Walker, file: Any, qualified: str) -> list[Candidate]:
    """Functions of the same file that call a method of that name."""
    called = f".{qualified.rpartition('.')[2]}("
    lines = walker.text(file).lines
    return [
        Candidate(file.path, "site", other)
        for other, (first, _, last, _, _) in file.index["functions"].items()
        if other != qualified and any(called in line for line in lines[first - 1 : last])
    ]


def called_as(file: Any, qualified: str) -> str:
    """The name by which other files may call a function that opens a capture; "" where there is none."""
    cls = file.index["functions"][qualified][3]
    if cls and qualified.rpartition(".")[2] not in ("__init__", "__enter__", "__call__"):
        return ""
    name = str(cls or qualified)
    return "" if "." in name else name


def start_module(walker: Walker, candidate: Candidate) -> Start | None:
    """Walk a module's forward as captured code; None where the class is none or has no forward of its own."""
    file = walker.project.files[candidate.path]
    definition = walker.definitions.class_(file, candidate.name)
    classes = walker.classes
    if module_refusal(walker, definition):
        return None
    found = classes.run_as_forward(definition)
    assert found is not None
    owner = found[0]
    traced = walker.by_package.around(file.module).compiles_class(definition)
    where = COMPILED_FORWARD if traced else FORWARD
    receiver = classes.generic(definition)
    method = classes.member(owner, "forward", found[1], receiver)
    function = _underlying(found[1])
    if method is None or function is None:
        return None
    try:
        args = root_arguments(walker, function, receiver, where)
    except (SyntaxError, ValueError, RecursionError):
        return None
    reason = (
        f"the forward of `{definition.name}` is compiled by its class decorator and captured"
        if traced
        else f"the forward of the module `{definition.name}` counts as captured"
    )
    line = function.line
    kind = "compiled-module" if traced else "module-forward"
    root = Root(kind, reason, function.file.path, line, f"{definition.qualname}.forward")
    node = Node(function, where, (), None)
    frame = _entry_frame(walker, node, file)
    frame.call_value(method, args.drop_first(), _Anchor(line))
    tables = walker.by_package.around(file.module)
    known = tables.known_to_be_captured(file.module)
    return Start(
        root,
        node,
        False,
        lacks=_lacks(walker, definition),
        warmed=tables.warmed(file.module),
        warmed_apart=tables.warmed_apart(file.module),
        module=definition,
        guess="" if known else f"`{file.module}` is none of the modules that its framework is known to capture",
    )


def _lacks(walker: Walker, definition: ClassDef) -> frozenset[str]:
    classes = walker.classes
    lacks = []
    for name in sorted(set(walker.tables.needs.values())):
        found = classes.find(definition, name)
        if found is not None and classes.member(found[0], name, found[1], None) is FALSE:
            lacks.append(name)
    return frozenset(lacks)


NO_MODULE = "it is no torch.nn.Module"


def module_refusal(walker: Walker, definition: ClassDef) -> str:
    """Why the forward of a class is no root; "" where it is one."""
    if not walker.classes.is_module(definition):
        return NO_MODULE
    if is_cut(definition):
        return "a comment says that it is not captured"
    found = walker.classes.find(definition, "forward")
    if found is None:
        return "it has no `forward`"
    function = _underlying(found[1])
    if function is None:
        return "its `forward` is not a function that can be followed"
    if is_cut(function):
        return "a comment says that its `forward` is not captured"
    if _is_stub(walker, function):
        return "its `forward` is a stub for subclasses to define"
    if _is_abstract(walker, definition):
        return "it leaves methods to its subclasses, which are walked instead"
    return _inherited_refusal(walker, definition)


def _inherited_refusal(walker: Walker, definition: ClassDef) -> str:
    """What a profile says of the modules that the bases of a class lie in: who runs the bases runs it, too."""
    for base in walker.classes.mro(definition)[1:]:
        if not isinstance(base, str):
            said = walker.by_package.around(base.file.module).not_captured_by(base.file.module, "")
            if said:
                return f"it is a `{base.name}`, and {said}"
    return ""


def folder_refusal(walker: Walker, file: Any) -> str:
    """Why no forward in a file is a root; "" where nothing speaks against it."""
    tables = walker.by_package.around(file.module)
    if not tables.is_run(file.path):
        return "nothing runs its file: it is a template or a converter by its name"
    folder = next((p for p in file.module.split(".")[:-1] if p in tables.host_only_folders), "")
    return f"it lies in a folder `{folder}`, which is not what a serving engine captures" if folder else ""


def _underlying(what: Any) -> FunctionDef | None:
    if isinstance(what, FunctionDef):
        return what
    while isinstance(what, Compiled):
        what = what.func
    return what.definition if isinstance(what, Func) else None


def _is_stub(walker: Walker, function: FunctionDef) -> bool:
    """A forward that only says that subclasses must define it."""
    import ast

    try:
        body = walker.shape(function).body
    except (SyntaxError, ValueError, RecursionError):
        return True
    real = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return not real or isinstance(real[0], (ast.Raise, ast.Pass))


def _is_abstract(walker: Walker, definition: ClassDef) -> bool:
    """A class that leaves methods to its subclasses: only these are ever made."""
    if not walker.classes.subclasses(definition):
        return False
    return any(walker.classes.is_abstract(m) for m in definition.methods.values())


class _Anchor:
    """Stands in for a syntax node where a root is entered: only its place is asked for."""

    def __init__(self, line: int):
        self.lineno = self.end_lineno = line
        self.col_offset = self.end_col_offset = 0
        self.args: list[Any] = []
        self.keywords: list[Any] = []


def _entry_frame(walker: Walker, node: Node, file: Any) -> Any:
    from cgsafe.walk.frame import Frame

    node.result_is_entry = True
    return Frame(walker, node, None, file, 0)


def walk_site(walker: Walker, candidate: Candidate) -> None:
    """Walk host code that may open a capture; what it opens is collected by `explicit_starts`."""
    before, walker.host_limit = walker.host_limit, SITE_DEPTH
    try:
        _walk_site(walker, candidate)
    finally:
        walker.host_limit = before


def _walk_site(walker: Walker, candidate: Candidate) -> None:
    from cgsafe.walk.frame import Frame

    file = walker.project.files[candidate.path]
    if candidate.name:
        definition = walker.definitions.function(file, candidate.name)
        if definition.cls is not None and definition.name == "__init__":
            walker.classes.ensure_made(walker.classes.generic(definition.cls))  # what it stores is to be kept
            return
        try:
            args = root_arguments(walker, definition, _receiver(walker, definition), HOST)
        except (SyntaxError, ValueError, RecursionError):
            return
        walker.decorated(definition, None)
        walker.call(definition, None, args, HOST)
        return
    import ast

    try:
        tree = ast.parse("\n".join(walker.text(file).lines))
    except (SyntaxError, ValueError, RecursionError):
        return
    body: list[ast.stmt] = [
        s for s in tree.body if isinstance(s, (ast.If, ast.With, ast.Expr, ast.Assign, ast.For, ast.Try))
    ]
    node = Node(None, HOST, (), None)
    walker.module_nodes[file.path] = node
    TRAIL.deps.add(node)
    frame = Frame(walker, node, None, file, 0)
    frame.env["__name__"] = _main()
    try:
        frame.run_module(body)
    except RecursionError:
        return


def _main() -> Value:
    from cgsafe.values import Const

    return Const("__main__")


def explicit_starts(walker: Walker) -> list[Start]:
    """The captures that the walked host code opens, in a fixed order."""
    return [start for start, _ in marked_starts(walker).values()]


def marked_starts(walker: Walker) -> dict[Any, tuple[Start, Cell]]:
    """The same, each under the leaf that is noted where its capture is opened."""
    starts: dict[Any, tuple[Start, Cell]] = {}
    for (owner, line), body in walker.capture_bodies.items():
        definition = owner.definition
        if definition is not None:
            path, function = definition.file.path, definition.qualname
        else:
            path, function = walker.module_path(owner), "<module>"
        kind, reason = next(
            ((k, r) for at, k, r, b in owner.sites if b is body), ("graph-context", "a capture opens here")
        )
        warm = set(body.warm)
        cell = Cell()
        with cell:
            if path in walker.project.files and walker.ask(walker.project.files[path], "has", REGISTERS):
                warm.add(REGISTERS)
            given = _given(walker, body)
        root = Root(kind, reason, path, line, function)
        warmed = _warmed(walker, path)
        starts[("start", "body", (owner, line))] = Start(root, body, True, frozenset(warm), given, warmed=warmed), cell
    for key, (place, callee, args) in walker.graphed_callables.items():
        cell = Cell()
        with cell:
            start = _graphed_start(walker, place, callee, args)
        if start is not None:
            starts[("start", "callable", key)] = start, cell
    for site, compiled in list(walker.capturing_compiles.items()):
        cell = Cell()
        with cell:
            start = _compiled_start(walker, site, compiled)
        if start is not None:
            starts[("start", "compile", site)] = start, cell
    return starts


def _warmed(walker: Walker, path: str) -> bool:
    """True where a profile says that whoever captures in a file runs the same before."""
    file = walker.project.files.get(path)
    return file is not None and walker.by_package.around(file.module).warmed(file.module)


def _given(walker: Walker, body: Node) -> frozenset[Any]:
    """The states of the objects that the code of a capture passes to what it calls."""
    found = set()
    for _, called in body.calls:
        definition = called.definition
        skip = 1 if definition is not None and definition.cls is not None else 0
        for value in called.args[skip:]:
            for part in parts_of(value):
                if isinstance(part, Instance) and not walker.classes.is_module(part.definition):
                    found.add(part.state)
    return frozenset(found)


def _graphed_start(walker: Walker, place: Any, callee: Value, args: Arguments) -> Start | None:
    """A callable that make_graphed_callables records, on its sample arguments."""
    file = walker.project.files.get(place.path)
    if file is None:
        return None
    root = Root("graphed-callable", "make_graphed_callables records it", place.path, place.line, place.function)
    node = Node(None, GRAPHED, (), None)
    _entry_frame(walker, node, file).call_value(callee, args, _Anchor(place.line))
    return Start(root, node, True)


def _compiled_start(walker: Walker, site: Any, compiled: Any) -> Start | None:
    """A function under torch.compile(mode="reduce-overhead") is captured by the compiler."""
    target = compiled.func
    place = site.place
    reason = f'torch.compile(mode="{site.mode}") records CUDA graphs'
    root = Root("compile", reason, place.path, place.line, place.function)
    node = Node(None, COMPILED, (), None)
    file = walker.project.files.get(place.path)
    if file is None:
        return None
    frame = _entry_frame(walker, node, file)
    definition: FunctionDef | None = None
    receiver: Value | None = None
    callee: Value = target
    if isinstance(target, Instance):
        found = walker.classes.find(target.definition, "forward")
        if found is None or not isinstance(found[1], FunctionDef):
            return None
        definition, receiver = found[1], target
        callee = walker.classes.member(found[0], "forward", found[1], target) or target
    elif isinstance(target, Func):
        definition = target.definition
        if definition.cls is not None and definition.outer is None:
            receiver = walker.classes.generic(definition.cls)
            callee = target
            args = root_arguments(walker, definition, receiver, COMPILED)
            frame.call_value(callee, args, _Anchor(place.line))
            return Start(root, node, True)
    elif hasattr(target, "receiver") and isinstance(getattr(target, "func", None), Func):
        definition, receiver = target.func.definition, target.receiver
    if definition is None:
        return None
    try:
        args = root_arguments(walker, definition, receiver, COMPILED)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if receiver is not None:
        args = args.drop_first()
    frame.call_value(callee, args, _Anchor(place.line))
    return Start(root, node, True)
