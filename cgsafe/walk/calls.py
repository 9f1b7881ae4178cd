"""Calls: what is called, with what, and what comes back."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import MAKING, CompiledCall, KernelLaunch, varied
from cgsafe.index.trail import TRAIL
from cgsafe.marks import is_cut
from cgsafe.values import (
    HIGH,
    LOW,
    MEDIUM,
    NONE,
    NUMPY,
    SETTINGS,
    TRUE,
    UNKNOWN,
    Bound,
    Class,
    Compiled,
    Const,
    Dict,
    Ext,
    ExtInstance,
    ExtMethod,
    Func,
    Instance,
    Partial,
    Seq,
    Super,
    Tensor,
    Union,
    Value,
    Variant,
    join_all,
    on_device,
    parts_of,
)
from cgsafe.walk.arguments import Arguments, signature
from cgsafe.walk.compiled import function_name
from cgsafe.walk.conditions import DOUBT
from cgsafe.walk.defs import FunctionDef
from cgsafe.walk.memos import REMEMBERED, doubted
from cgsafe.walk.once import ONCE
from cgsafe.walk.owned import set_by_method
from cgsafe.walk.torch_calls import TorchCalls

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


def on_host(value: Value) -> Value:
    """A value whose name says that it lives on the host."""
    return join_all(
        [p.with_(device="cpu") if isinstance(p, Tensor) and p.device != "pinned" else p for p in parts_of(value)]
    )


def implementation(callee: Value) -> FunctionDef | None:
    """The method of a class that a callable stands for."""
    func = callee.func if isinstance(callee, Bound) else None
    return func.definition if isinstance(func, Func) and func.definition.cls is not None else None


def _holds_tensor(value: Value) -> bool:
    """True where an argument is, or contains, a tensor."""
    return any(
        isinstance(p, Tensor) or (isinstance(p, Seq) and p.element is not None and _holds_tensor(p.element))
        for p in parts_of(value)
    )


def _is_plain(node: ast.Call) -> bool:
    """True where a call passes on neither `*` nor `**`."""
    try:
        return node.plain  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        starred = any(a.__class__ is ast.Starred for a in node.args) or any(k.arg is None for k in node.keywords)
        node.plain = not starred  # type: ignore[attr-defined]
        return not starred


class Calls(TorchCalls):
    """Mixin of Frame."""

    def ev_call(self: Frame, node: ast.Call) -> Value:
        function = node.func
        if function.__class__ is ast.Name and function.id == "super":  # type: ignore[attr-defined]
            return self.super_object(node)
        callee = self.eval(function)
        args = self.arguments(node)
        return self.call_value(callee, args, node)

    def arguments(self: Frame, node: ast.Call) -> Arguments:
        evaluate = self.eval
        if _is_plain(node):
            return Arguments([evaluate(a) for a in node.args], {k.arg: evaluate(k.value) for k in node.keywords})  # type: ignore[misc]
        args = Arguments()
        for argument in node.args:
            if argument.__class__ is ast.Starred:
                value = self.eval(argument.value)  # type: ignore[attr-defined]
                if isinstance(value, Seq) and value.items is not None and args.star is None:
                    args.positional.extend(value.items)
                else:
                    element = self.element_of(value, argument)
                    args.star = element if args.star is None else join_all([args.star, element])
            elif args.star is not None:
                args.star = join_all([args.star, self.eval(argument)])
            else:
                args.positional.append(self.eval(argument))
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            if keyword.arg is not None:
                args.keywords[keyword.arg] = value
                continue
            for part in parts_of(value):
                if isinstance(part, Dict):
                    for key, item in part.items:
                        if isinstance(key, str):
                            args.keywords.setdefault(key, item)
                    if part.other is not None:
                        args.rest = part.other if args.rest is None else join_all([args.rest, part.other])
                elif part is not NONE:
                    args.rest = UNKNOWN
        return args

    def super_object(self: Frame, node: ast.Call) -> Value:
        definition: FunctionDef | None = self.node.definition
        while definition is not None and definition.cls is None:
            definition = definition.outer
        if len(node.args) == 2:
            owner, receiver = self.eval(node.args[0]), self.eval(node.args[1])
            if isinstance(owner, Class):
                return Super(owner.definition, receiver)
            return UNKNOWN
        if definition is None or definition.cls is None or self.shape is None or not self.shape.params:
            return UNKNOWN
        receiver = self.env.get(self.shape.params[0], UNKNOWN)
        return Super(definition.cls, receiver)

    def call_value(self: Frame, callee: Value, args: Arguments, node: Any) -> Value:
        """Call a value; returns what comes back."""
        kind = callee.__class__
        if kind is Func:
            return self.call_function(callee.definition, callee.scope, args, node)  # type: ignore[attr-defined]
        if kind is Bound:
            return self.call_value(callee.func, args.prepend(callee.receiver), node)  # type: ignore[attr-defined]
        if kind is Ext:
            return self.call_external(callee.name, args, node)  # type: ignore[attr-defined]
        if kind is ExtMethod:
            return self.call_method(callee.receiver, callee.name, args, node)  # type: ignore[attr-defined]
        if kind is Class:
            return self.call_class(callee.definition, args, node)  # type: ignore[attr-defined]
        if kind is Instance:
            return self.call_instance(callee, args, node)  # type: ignore[arg-type]
        if kind is ExtInstance:
            return self.call_external_instance(callee, args, node)  # type: ignore[arg-type]
        if kind is Union:
            parts = [p for p in callee.parts if p is not NONE]  # type: ignore[attr-defined]
            results = [self.call_value(p, args, node) for p in parts]
            return join_all(self.as_variants(parts, results))
        if kind is Partial:
            assert isinstance(callee, Partial)
            merged = Arguments(
                [*callee.args, *args.positional], {**dict(callee.kwargs), **args.keywords}, args.star, args.rest
            )
            return self.call_value(callee.func, merged, node)
        if kind is Compiled:
            return self.call_compiled(callee, args, node)  # type: ignore[arg-type]
        return callee if callee is SETTINGS else UNKNOWN

    def as_variants(self: Frame, callees: list[Value], results: list[Value]) -> list[Value]:
        """Several implementations of one method were called: where only some return a tensor, it is known which."""
        if all(any(isinstance(p, Tensor) for p in parts_of(r)) for r in results):
            return results
        marked: list[Value] = []
        for callee, result in zip(callees, results, strict=True):
            owner = implementation(callee)
            if owner is not None and any(isinstance(p, Tensor) for p in parts_of(result)):
                needs = next((n for own, n in self.tables.needs.items() if self._says(owner, own)), "")
                cls = owner.cls.name if owner.cls is not None else ""
                variant = Variant(owner.name, cls, needs)
                result = join_all(
                    [p.with_(variant=p.variant or variant) if isinstance(p, Tensor) else p for p in parts_of(result)]
                )
            marked.append(result)
        return marked

    def _says(self: Frame, method: FunctionDef, attribute: str) -> bool:
        found = self.walker.classes.find(method.cls, attribute) if method.cls is not None else None
        return found is not None and self.walker.classes.member(found[0], attribute, found[1], None) is TRUE

    def call_function(self: Frame, definition: FunctionDef, scope: Any, args: Arguments, node: Any) -> Value:
        verdict = self.tables.function_verdict(definition, self.region)
        if verdict is None and definition.name in self.tables.class_guards:
            verdict = self.answer_here(definition.name, node)
        where = self.region
        if verdict is not None:
            if isinstance(verdict, Value):
                return verdict
            if verdict == "cut":
                return UNKNOWN
            # Behind an eager break: recorded only where the whole model is captured in one piece.
            where = varied(where, traced=False, doubt="behind an eager break")
        elif definition.decorators and self.tables.warms and where.captured and self.keeps_results(definition):
            where = doubted(where, REMEMBERED)
        if self.has_paths and not where.doubt and ONCE in self.env:
            stored = self.env[ONCE]
            where = varied(where, doubt=f"it runs once, to fill `{stored.value}`" if isinstance(stored, Const) else "")
        doubt = self.env.get(DOUBT) if self.has_paths and where.captured else None
        if isinstance(doubt, Const) and not where.doubt:
            where = varied(where, doubt=doubt.value)
        called = self.walker.call(definition, scope, args, where)
        self.record_call(node, called)
        if not where.captured:
            if called.warm:
                self.node.warm |= called.warm
            if definition.decorators and self.keeps_results(definition):
                self.node.warm.add(("cached", definition.label))
        self.after_call(args)
        if called.stores and args.positional:
            self.take_stores(called, args.positional[0])
            if self.walker.classes.constructing and not where.captured and not self.walker.shallow:
                set_by_method(self, args.positional[0], node, called)
        return called.outcome if not self.tables.names_host(definition.name) else on_host(called.outcome)

    def call_cached(self: Frame, function: Value, args: Arguments, node: Any) -> Value:
        """A function behind `functools.lru_cache`: a warm-up has run it where no capture is seen, and the result is kept.

        Tensors are compared by identity, so that a new one as an argument is a call like the first.
        """
        given = [*args.positional, *args.keywords.values(), *(v for v in (args.star, args.rest) if v is not None)]
        before = self.region
        if self.is_assumed() and not before.traced and not any(_holds_tensor(v) for v in given):
            self.region = doubted(before, "a cache keeps what it returned at the first call")
        result = self.call_value(function, args, node)
        self.region = before
        return result

    def answer_here(self: Frame, name: str, node: Any) -> Value | None:
        """The answer of a predicate in the methods of the class at hand, by profile."""
        definition = self.node.definition
        if name not in self.tables.class_guards or definition is None or definition.cls is None:
            return None
        return self.tables.answer_in(definition.cls.name, name, node, self.region)

    def take_stores(self: Frame, called: Any, receiver: Value) -> None:
        """What a method set on the object that this function works on is seen here too."""
        if self.shape is None or not self.shape.params or not isinstance(receiver, Instance):
            return
        name = self.shape.params[0]
        if self.env.get(name) is not receiver:
            return
        for attribute, value in called.stores.items():
            path = f"{name}.{attribute}"
            known = self.env.get(path)
            self.env[path] = value if self.branches == 0 or known is None else join_all([known, value])
            self.note_path(path)
            self.node.stores[attribute] = value
            if self.branches or self.returned or attribute in called.maybe:
                self.node.maybe = {*self.node.maybe, attribute}

    def after_call(self: Frame, args: Arguments) -> None:
        """While an object is made, what a method of it stored is read from the object again."""
        if "self" not in self.heads or self.region.captured:
            return
        if any(isinstance(a, Instance) for a in args.positional):
            for key in [k for k in self.env if k.startswith("self.")]:
                del self.env[key]

    def call_class(self: Frame, definition: Any, args: Arguments, node: Any) -> Value:
        classes = self.walker.classes
        new = classes.find(definition, "__new__")
        if new is not None and isinstance(new[1], FunctionDef) and not classes.is_module(definition):
            if classes.find(definition, "__init__") is None and not classes.is_namedtuple(definition):
                self.walker.call(new[1], new[0].scope, args.prepend(Class(definition)), self.region)
        externals = classes.externals(definition)
        if self.tables.is_enum(externals):
            return classes.generic(definition)
        if any(e.startswith("torch.autograd.") for e in externals):
            return classes.generic(definition)
        made = classes.instantiate(definition, args, self.region.captured or self.region is MAKING)
        if self.region.captured and isinstance(made, Instance) and made.state.transient:
            self._run_constructor(made, args, node)
        return made

    def _run_constructor(self: Frame, made: Instance, args: Arguments, node: Any) -> None:
        """Captured code makes an object: what its constructor does is recorded, too."""
        classes = self.walker.classes
        init = classes.initializer(made.definition)
        if init is None or classes.is_module(made.definition):
            return
        self.record_call(node, self.walker.call(init[1], init[0].scope, args.prepend(made), self.region))

    def call_instance(self: Frame, callee: Instance, args: Arguments, node: Any) -> Value:
        """Calling an object: `__call__`, or a module's hooks and `forward`."""
        classes = self.walker.classes
        definition = callee.definition
        if self.region.captured and is_cut(definition):
            return UNKNOWN
        for name in ("__call__", "forward"):
            found = classes.find(definition, name)
            if name == "__call__" and "__call__" in callee.state.attributes:
                return self.call_value(callee.state.attributes["__call__"], args, node)
            if name == "forward" and "forward" in callee.state.attributes:
                return self.call_value(callee.state.attributes["forward"], args, node)
            if found is None:
                continue
            method = classes.member(found[0], name, found[1], callee)
            if method is None:
                continue
            if name == "forward":
                if not classes.is_module(definition) and not classes.externals(definition):
                    break
                result = self.call_forward(callee, args, node)
            else:
                result = self.call_value(method, args, node)
            if result is UNKNOWN and classes.is_module(definition) and not classes.find(definition, "forward"):
                return Tensor("cuda", None, "", MEDIUM)
            return result
        if classes.is_module(definition):
            kind = self.tables.module_container(classes.externals(definition))
            if kind == "sequential":
                return self.call_sequence(self.module_items(callee), args, node)
            return Tensor("cuda", None, "", LOW)
        return UNKNOWN

    def call_forward(self: Frame, callee: Instance, args: Arguments, node: Any) -> Value:
        """A module's forward with the hooks around it, as torch.nn.Module.__call__ runs it."""
        classes = self.walker.classes
        definition = callee.definition
        found = classes.run_as_forward(definition)
        method = classes.member(found[0], "forward", found[1], callee) if found is not None else None
        if method is None:
            return UNKNOWN
        self.run_hooks(callee, "pre", args, node)
        if self.region.captured and not self.region.hot and not self.walker.shallow and classes.is_module(definition):
            self.walker.reached.add(definition)
            TRAIL.deps.add(("reached", definition.file.path, definition.qualname))
        before = self.region
        if before.captured and not before.traced and self.tables.compiles_class(definition):
            self.region = varied(before, traced=True)
        result = self.call_value(method, args, node)
        self.region = before
        self.run_hooks(callee, "post", args, node, result)
        return result

    def run_hooks(
        self: Frame, module: Instance, kind: str, args: Arguments, node: Any, result: Value | None = None
    ) -> None:
        TRAIL.deps.add(module.state)
        for hook_kind, hook in module.state.hooks:
            if hook_kind == kind:
                given: list[Value] = [module, Seq("tuple", self._as_forward_sees(module, args))]
                if result is not None:
                    given.append(result)
                self.call_value(hook, Arguments(given), node)

    def _as_forward_sees(self: Frame, module: Instance, args: Arguments) -> tuple[Value, ...]:
        """The positional arguments, with what forward's own parameters say of those that are not known."""
        from cgsafe.walk.entry import entry_value

        found = self.walker.classes.find(module.definition, "forward")
        if found is None or not isinstance(found[1], FunctionDef):
            return tuple(args.positional)
        shape = self.walker.shape(found[1])
        names = shape.params[1:]
        values = list(args.positional)
        for number, name in enumerate(names[: len(values)]):
            values[number] = entry_value(self.walker, found[1], shape, name, values[number], self.region)
        return tuple(values)

    def call_sequence(self: Frame, modules: Value, args: Arguments, node: Any) -> Value:
        """nn.Sequential: each module on what the one before gave."""
        value: Value = args.positional[0] if args.positional else UNKNOWN
        if isinstance(modules, Seq) and modules.items is not None:
            for module in modules.items:
                value = self.call_value(module, Arguments([value]), node)
            return value
        if isinstance(modules, Seq) and modules.element is not None:
            first = self.call_value(modules.element, Arguments([value]), node)
            self.call_value(modules.element, Arguments([first]), node)
            return first
        return Tensor("cuda", None, "", MEDIUM)

    def call_compiled(self: Frame, callee: Compiled, args: Arguments, node: Any) -> Value:
        """A torch.compile'd callable is called: fine on the host, of interest under capture or another compile."""
        site = callee.site
        here = self.region
        if (here.captured or here.traced) and not (self._is_own_compile(callee) and not here.traced):
            self.emit(
                CompiledCall,
                node,
                HIGH,
                compiled=function_name(callee.func),
                decorator=site.place,
                as_decorator=site.as_decorator,
                options=site.options,
                unless=site.unless,
                signature=(site.label, signature(args)),
                call=self.place(node),
            )
        else:
            self.node.warm.add((site.label, signature(args)))
        inner = varied(
            here,
            captured=here.captured or site.captures,
            traced=True,
            explicit=here.explicit or site.captures,
        )
        before, self.region = self.region, inner
        try:
            return self.call_value(callee.func, args, node)
        finally:
            self.region = before

    def launch(self: Frame, args: Arguments, node: Any) -> Value:
        """`kernel[grid](...)` of a kernel that tunes itself: of interest under capture, unless a warm-up did the same."""
        kernel = args.positional[0]
        assert isinstance(kernel, Func)
        here = self.region
        done = (kernel.definition.label, signature(args.drop_first()))
        if here.captured and not (here.traced and not here.behind_op):
            self.emit(KernelLaunch, node, HIGH, kernel=kernel.definition.name, signature=done)
        elif not here.captured:
            self.node.warm.add(done)
        return NONE

    def _is_own_compile(self: Frame, callee: Compiled) -> bool:
        """A module's forward under torch.compile is that module's own compile, not one inside another."""
        func = callee.func
        while isinstance(func, (Bound, Partial)):
            func = func.func
        if isinstance(func, Instance):
            return self.walker.classes.is_module(func.definition)
        if not isinstance(func, Func) or func.definition.name != "forward" or func.definition.cls is None:
            return False
        return self.walker.classes.is_module(func.definition.cls)

    # -- things outside the checked code ---------------------------------------------------------------------------

    def call_external(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        """Call a function or class that is not part of the checked code."""
        if name == "cgsafe.launch":
            return self.launch(args, node)
        if name.startswith("builtins."):
            from cgsafe.walk.builtin_calls import call_builtin

            return call_builtin(self, name[9:], args, node)
        verdict = self.tables.external_verdict(name, self.region)
        if verdict is not None:
            return verdict
        if self.region.captured:
            self.note_frozen_call(name, args, node)
        if name.startswith("torch."):
            return self.call_torch(name, args, node)
        if name.startswith("numpy."):
            return self.call_numpy(name, args, node)
        from cgsafe.walk.library_calls import call_library

        return call_library(self, name, args, node)

    def call_numpy(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        for value in args.positional[:1]:
            for part in parts_of(value):
                if isinstance(part, Tensor):
                    self.read_host(part, node.args[0] if node.args else node, "numpy")
        return self.tables.numpy_result(name) or NUMPY

    def read_host(self: Frame, value: Value, node: ast.AST, how: str, written: ast.AST | None = None) -> None:
        """Somebody reads a value on the host, at `node`; `written` is the expression of the value where that is another."""
        from cgsafe.events import HostRead
        from cgsafe.walk.conditions import describe
        from cgsafe.walk.frame import source_of

        waits, confidence = on_device(value)
        if not waits:
            if self.region.captured:
                self.note_host_draw(value, node)
            return
        if how in ("numpy", "__array__"):
            # A tensor on the GPU has no such conversion at all: in code that works, it is on the CPU.
            confidence = confidence if confidence == HIGH else LOW
        elif how == "log":
            confidence = LOW  # read only if the logger's level lets it through
        others = [describe(p) for p in parts_of(value) if p not in waits and p is not NONE]
        self.emit(
            HostRead,
            node,
            confidence,
            how=how,
            partly=" or ".join(dict.fromkeys(others)),
            source=source_of(written) if written is not None else None,
            **self.reason(waits, written or node),
        )
