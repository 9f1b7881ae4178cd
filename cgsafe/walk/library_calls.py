"""Calls into the standard library and others, and methods of host objects and of modules."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import HostRead
from cgsafe.index.trail import TRAIL
from cgsafe.knowledge import parse_entry
from cgsafe.values import (
    BOOL,
    FLOAT,
    INT,
    LOW,
    NONE,
    NUMPY,
    OBJECT,
    STR,
    UNKNOWN,
    Bound,
    Class,
    Const,
    Dict,
    Ext,
    ExtInstance,
    ExtMethod,
    Func,
    Host,
    Instance,
    Numpy,
    Partial,
    Seq,
    Super,
    Tensor,
    Union,
    Value,
    join,
    join_all,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.container_methods import dict_method, plain_method, receiver_node, sequence_method
from cgsafe.walk.decorators import CACHED
from cgsafe.walk.facts import matches
from cgsafe.walk.objects import object_method
from cgsafe.walk.paths import dotted_path

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


def call_library(frame: Frame, name: str, args: Arguments, node: Any) -> Value:
    """A function or class of a package that is not part of the checked code."""
    first = args.positional[0] if args.positional else UNKNOWN
    if name == "functools.partial":
        if args.positional:
            return Partial(
                first, tuple(args.positional[1:]), tuple(sorted(args.keywords.items(), key=lambda kv: kv[0]))
            )
        return UNKNOWN
    if name in frame.tables.identity_functions:
        # With a function: its decorated self. With options: a decorator.
        caches = name in frame.tables.caches
        if args.positional and isinstance(first, (Func, Bound, Class, Partial)):
            return Partial(CACHED, (first,), ()) if caches else first
        return Ext(name if caches else "cgsafe.identity")
    if name == CACHED.name:
        return frame.call_cached(first, args.drop_first(), node)
    if name == "functools.wraps" or name == "functools.update_wrapper":
        return Ext("cgsafe.identity") if name.endswith("wraps") else first
    if name == "cgsafe.identity":
        return first
    if name == "cgsafe.make-operator":
        return Partial(Ext("cgsafe.operator"), tuple(args.positional), ())
    if name == "cgsafe.operator":
        return _run_operator(frame, args, node)
    if name in ("contextlib.contextmanager", "contextlib.asynccontextmanager"):
        return Partial(Ext("cgsafe.enter-generator"), (first,), ())
    if name == "cgsafe.enter-generator":
        return _generator_context(frame, args, node)
    if name == "typing.cast" and isinstance(node, ast.Call) and len(node.args) == 2:
        from cgsafe.walk.annotations import annotation_in_file
        from cgsafe.walk.arguments import strengthen

        return strengthen(args.positional[-1], annotation_in_file(frame.walker, frame.file, node.args[0]))
    if name in ("copy.copy", "copy.deepcopy"):
        return args.positional[-1] if args.positional else UNKNOWN
    if name in ("collections.OrderedDict", "collections.defaultdict"):
        if name.endswith("defaultdict"):
            return Dict({}, frame.call_value(first, Arguments(), node) if args.positional else UNKNOWN)
        if isinstance(first, Seq) and first.items is not None:
            pairs = [i.items for i in first.items if isinstance(i, Seq) and i.items is not None and len(i.items) == 2]
            if len(pairs) == len(first.items) and all(isinstance(p[0], Const) for p in pairs):
                return Dict({p[0].value: p[1] for p in pairs})  # type: ignore[attr-defined]
        return first if isinstance(first, Dict) else Dict(dict(args.keywords), None if not args.positional else UNKNOWN)
    if name == "collections.deque":
        return Seq("list", None, frame.element_of(first, node) if args.positional else UNKNOWN)
    if name.startswith("math."):
        for value in args.positional:
            frame.read_host(value, node, "math")
        return INT if name in frame.tables.math_ints else FLOAT
    if name == "operator.index":
        frame.read_host(first, node, "index")
        return INT
    if name in ("operator.truth", "operator.not_"):
        frame.test(first, node, "bool", node)
        return BOOL
    if name == "operator.contains" and len(args.positional) == 2:
        return frame.contains(ast.In(), args.positional[1], first, node)
    if name in frame.tables.whole_reads:
        frame.read_host(first, node, "cpu")
        return OBJECT
    if name in ("itertools.takewhile", "itertools.dropwhile", "itertools.filterfalse") and len(args.positional) == 2:
        element = frame.element_of(args.positional[1], node)
        frame.test(frame.call_value(first, Arguments([element]), node), node, "filter", node)
        return Seq("list", None, element)
    if name == "itertools.compress" and len(args.positional) == 2:
        frame.test(frame.element_of(args.positional[1], node), node, "filter", node)
        return Seq("list", None, frame.element_of(first, node))
    if name.startswith("itertools."):
        return _itertools(frame, name, args, node)
    if name in ("contextlib.ExitStack", "contextlib.AsyncExitStack"):
        return ExtInstance("contextlib.ExitStack")
    if name in ("contextlib.nullcontext", "contextlib.suppress"):
        return ExtInstance("cgsafe.context", first if args.positional else NONE)
    if name.startswith("os.environ.get") or name in ("os.getenv",):
        return Host("object")
    if name.startswith("logging."):
        return ExtInstance("logging.Logger")
    if name.startswith(frame.tables.host_modules):
        return Host("object")
    if name in ("weakref.ref", "weakref.proxy"):
        return UNKNOWN
    if name == "dataclasses.replace":
        return first
    if name == "dataclasses.field":
        default = args.keywords.get("default")
        return default if default is not None else UNKNOWN
    if name in frame.tables.like_first:
        tensors = [p for p in parts_of(first) if isinstance(p, Tensor)]
        return tensors[0].with_(rank=None) if tensors else UNKNOWN
    if matches(name, frame.tables.waiting_classes):
        return ExtInstance(name)
    if matches(name, frame.tables.library_waits):
        frame.note_wait(name, node)
    value = frame.tables.functions.get(name)
    return frame.apply(parse_entry(value), name, None, args, node) if value is not None else UNKNOWN


def _generator_context(frame: Frame, args: Arguments, node: Any) -> Value:
    """A generator-based context manager is called: where it yields inside a capture, its block is captured too."""
    function = args.positional[0] if args.positional else UNKNOWN
    rest = args.drop_first()
    result = frame.call_value(function, rest, node)
    definition = function.definition if isinstance(function, Func) else None
    captured = definition is not None and definition in frame.walker.capturing_generators
    element = result.element if isinstance(result, Seq) and result.element is not None else NONE
    return ExtInstance("cgsafe.captured-context" if captured else "cgsafe.context", element)


def _run_operator(frame: Frame, args: Arguments, node: Any) -> Value:
    """A custom operator is called by the name of its function."""
    from cgsafe.events import varied

    here = frame.region
    name = args.positional[0]
    label = str(name.value) if isinstance(name, Const) else "operator"
    frame.region = varied(here, traced=False, behind_op=label)
    try:
        return frame.call_value(
            args.positional[1], Arguments(args.positional[2:], args.keywords, args.star, args.rest), node
        )
    finally:
        frame.region = here


def _itertools(frame: Frame, name: str, args: Arguments, node: Any) -> Value:
    elements = [frame.element_of(v, node) for v in args.positional]
    if name in ("itertools.chain", "itertools.islice", "itertools.cycle", "itertools.repeat"):
        return Seq("list", None, join_all(elements[:1] if "islice" in name else elements))
    if name == "itertools.chain.from_iterable":
        return Seq("list", None, frame.element_of(elements[0], node) if elements else UNKNOWN)
    if name in ("itertools.product", "itertools.zip_longest", "itertools.combinations", "itertools.pairwise"):
        return Seq("list", None, Seq("tuple", tuple(elements)) if "product" in name or "zip" in name else UNKNOWN)
    if name == "itertools.accumulate":
        return Seq("list", None, elements[0] if elements else UNKNOWN)
    if name == "itertools.count":
        return Seq("list", None, INT)
    return Seq("list", None, UNKNOWN)


def call_host_method(frame: Frame, receiver: Value, name: str, args: Arguments, node: Any) -> Value:
    """`receiver.name(...)` for a receiver that is no tensor."""
    first = args.positional[0] if args.positional else UNKNOWN
    if _is_unknown(receiver) or isinstance(receiver, (ExtInstance, Instance)):
        verdict = frame.tables.named_verdict(name, frame.region)
        if verdict is None and name in frame.tables.class_guards:
            verdict = frame.answer_here(name, node)
        if verdict is not None:
            return verdict
    if isinstance(receiver, Seq):
        return sequence_method(frame, receiver, name, args, node)
    if isinstance(receiver, Dict):
        return dict_method(frame, receiver, name, args, node)
    if isinstance(receiver, (Const, Host)):
        return plain_method(frame, receiver, name, args, node)
    if isinstance(receiver, Numpy):
        return NUMPY if name not in ("tolist", "item") else Host("object")
    if isinstance(receiver, ExtInstance):
        return _external_method(frame, receiver, name, args, node)
    if isinstance(receiver, Instance):
        return _module_method(frame, receiver, name, args, node)
    if isinstance(receiver, Super):
        return NONE
    if isinstance(receiver, (Func, Bound)) and name in ("forward", "__call__"):
        return frame.call_value(receiver, args, node)
    if receiver is UNKNOWN or isinstance(receiver, Union):
        if receiver is UNKNOWN and name in frame.tables.methods and frame.tables.only_tensors_have(name):
            # Nothing but a tensor has this method, so it is one from here on.
            captured = frame.region.captured or frame.region.traced
            tensor = Tensor("cuda" if captured else "", None, "", LOW)
            _learn(frame, node, tensor)
            return frame.call_method(tensor, name, args, node)
        if name in ("item", "tolist", "cpu", "numpy") and receiver is UNKNOWN:
            if frame.region.hot and name != "numpy" and isinstance(node, ast.Call):
                frame.emit(HostRead, node, LOW, how=name)  # a guess: arrays have some of these methods too
            return {"item": Host("number"), "numpy": NUMPY}.get(name, UNKNOWN)
        if name in ("size", "dim", "numel"):
            return INT if name != "size" or args.positional else Host("shape")
        if name in ("format", "join", "strip", "lower", "upper", "startswith", "endswith", "split") and name != "split":
            return BOOL if name.endswith("with") else STR
    del first
    return UNKNOWN


def _is_unknown(value: Value) -> bool:
    """True for what is not known, and for attributes of it."""
    while isinstance(value, ExtMethod):
        value = value.receiver
    return value is UNKNOWN


def _learn(frame: Frame, node: Any, tensor: Tensor) -> None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        path = dotted_path(node.func.value)
        if path is not None and (path in frame.env or "." in path):
            frame.env[path] = tensor.with_(confidence=2) if frame.region.captured else tensor
            if "." in path:
                frame.note_path(path)


def _external_method(frame: Frame, receiver: ExtInstance, name: str, args: Arguments, node: Any) -> Value:
    first = args.positional[0] if args.positional else UNKNOWN
    if receiver.name.endswith("CUDAGraph") and name == "replay":
        frame.note_inside("replay", node)
        return NONE
    if receiver.name.endswith("CUDAGraph") and name in ("capture_begin", "capture_end"):
        frame.stream_method(name, node)
        return NONE
    frame.note_waiting_method(receiver, name, args, node)
    noted = frame.note_stream_method(receiver, name, args, node)
    if noted is not None:
        return noted
    if receiver.name.startswith("torch."):
        known = object_method(frame, receiver, name, args, node)
        if known is not None:
            return known
    if receiver.name == "contextlib.ExitStack" and name == "enter_context":
        return frame.enter(first, node)
    if receiver.name == "logging.Logger":
        for value, argument in zip(args.positional[1:], getattr(node, "args", ())[1:], strict=False):
            frame.read_host(value, argument, "log")
        return NONE
    if name in frame.tables.chained_methods:
        return receiver
    if name in ("forward", "__call__"):
        return frame.call_external_instance(receiver, args, node)
    if isinstance(receiver.detail, (Seq, Dict)):
        container: Value = receiver.detail
        if name in ("append", "extend", "insert", "update", "__setitem__"):
            _change_container(frame, receiver, name, args, node)
            return NONE
        return call_host_method(frame, container, name, args, None)
    if name in ("parameters", "buffers"):
        return Seq("list", None, Tensor("cuda", None, "f", 3))
    if name == "named_parameters":
        return Seq("list", None, Seq("tuple", (STR, Tensor("cuda", None, "f", 3))))
    if name in ("children", "modules"):
        return Seq("list", None, UNKNOWN)
    if name == "__enter__":
        return frame.enter(receiver, node)
    return UNKNOWN


def _change_container(frame: Frame, receiver: ExtInstance, name: str, args: Arguments, node: Any) -> None:
    target = receiver_node(node)
    if target is None:
        return
    first = args.positional[0] if args.positional else UNKNOWN
    detail = receiver.detail
    if isinstance(detail, Seq):
        if name == "append" and detail.items is not None and frame.branches == 0:
            changed: Value = Seq("list", (*detail.items, first))
        elif name == "append":
            changed = Seq("list", None, first if detail.element is None else join(detail.element, first))
        else:
            element = frame.element_of(args.positional[-1], node) if args.positional else UNKNOWN
            changed = Seq("list", None, element if detail.element is None else join(detail.element, element))
        frame.rebind(target, ExtInstance(receiver.name, changed))
    elif isinstance(detail, Dict) and isinstance(first, Dict):
        frame.rebind(target, ExtInstance(receiver.name, join(detail, first)))


def _module_method(frame: Frame, receiver: Instance, name: str, args: Arguments, node: Any) -> Value:
    """A method that an object has from a base class outside the checked code: torch.nn.Module's, mostly."""
    classes = frame.walker.classes
    if name in ("register_buffer", "register_parameter"):
        key, value = args.get(0, "name"), args.get(1, "tensor", "param")
        if isinstance(key, Const) and value is not None:
            origin = node.args[1] if isinstance(node, ast.Call) and len(node.args) > 1 else None
            frame.note_attribute(node, receiver, str(key.value), value, origin, "register_buffer")
            stored = join_all([_on_device(p) for p in parts_of(value)])
            classes.store(receiver, key.value, stored, frame.branches == 0)
            if frame.watch is not None:
                frame.watch.append((key.value, stored))
        return NONE
    if name in ("add_module", "register_module"):
        key, value = args.get(0, "name"), args.get(1, "module")
        if isinstance(key, Const) and value is not None:
            classes.store(receiver, key.value, value, frame.branches == 0)
        return NONE
    if name in ("register_forward_pre_hook", "register_forward_hook"):
        if args.positional:
            classes.add_hook(receiver, "pre" if "pre" in name else "post", args.positional[0])
        return UNKNOWN
    if name in ("append", "extend", "insert", "__init__") and classes.is_module(receiver.definition):
        _fill_container(frame, receiver, name, args, node)
        return NONE
    if name in frame.tables.chained_methods:
        return receiver
    if name == "__setattr__" and len(args.positional) == 2 and isinstance(args.positional[0], Const):
        classes.store(receiver, args.positional[0].value, args.positional[1], frame.branches == 0)
        return NONE
    if name == "__call__" and classes.find(receiver.definition, "forward") is not None:
        return frame.call_forward(receiver, args, node)  # super().__call__(...)
    if name == "get" and args.positional and len(args.positional) > 1:
        # A mapping whose contents are not known: of a function given as the default, at least that much is.
        default = args.positional[1]
        if isinstance(default, (Func, Bound, Partial, Class)):
            return default
    if name == "__call__" or name == "forward":
        return Tensor("cuda", None, "", LOW) if classes.is_module(receiver.definition) else UNKNOWN
    if name in ("parameters", "buffers"):
        return Seq("list", None, Tensor("cuda", None, "f", 3))
    if name == "named_parameters" or name == "named_buffers":
        return Seq("list", None, Seq("tuple", (STR, Tensor("cuda", None, "f", 3))))
    if name == "get" and classes.is_dataclass(receiver.definition) and isinstance(args.get(0), Const):
        return frame.attribute(receiver, args.positional[0].value, None)  # type: ignore[attr-defined]
    return UNKNOWN


def _on_device(value: Value) -> Value:
    """A buffer or parameter moves with its module to the GPU."""
    if isinstance(value, Tensor):
        return value.with_(device="cuda", confidence=max(value.confidence, 2))
    return value


def _fill_container(frame: Frame, receiver: Instance, name: str, args: Arguments, node: Any) -> None:
    """A subclass of ModuleList or Sequential gets its children."""
    if not frame.tables.module_container(frame.walker.classes.externals(receiver.definition)) or not args.positional:
        return
    TRAIL.deps.add(receiver.state)
    held = receiver.state.attributes.get("<items>")
    first = args.positional[0]
    if name == "append":
        element = first
    elif isinstance(first, Dict):
        frame.walker.classes.store(receiver, "<items>", first, True)
        return
    elif isinstance(first, Seq):
        element = first.element if first.element is not None else UNKNOWN
    else:
        element = join_all(args.positional)
    if isinstance(held, Seq) and held.element is not None:
        element = join(held.element, element)
    frame.walker.classes.store(receiver, "<items>", Seq("list", None, element), True)
