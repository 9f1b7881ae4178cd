"""Registries that a class keeps, filled by a method of it that is used as a decorator."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

BACKENDS = """
import inspect
from enum import Enum

import torch


class Name(str, Enum):
    PLAIN = "plain"
    READS = "reads"


class Backends:
    known = {}
    arguments = {}
    active = Name("plain")

    @classmethod
    def register(cls, name, limits=None):
        def decorate(function):
            cls.known[name] = function
            cls.arguments[name] = set(inspect.signature(function).parameters)
            return function

        return decorate

    @classmethod
    def chosen(cls):
        return cls.active, cls.known[cls.active]


def dispatch(query, mask=None, *, backend=None):
    if backend is None:
        name, function = Backends.chosen()
    else:
        function = Backends.known.get(backend)
    return function(query=query, mask=mask)


@Backends.register(Name.PLAIN)
def plain(query, mask=None):
    return query


@Backends.register(Name.READS, limits=[])
def reads(query, mask=None):
    if mask is not None:
        query = query[: mask.sum().item()]  # expect: CG102
    return query


def unregistered(query, mask=None):
    return query.sum().item()
"""

MODEL = """
from backends import {imported}


class Model(nn.Module):
    def forward(self, query: torch.Tensor, mask: torch.Tensor):
        return {call}
"""

CALLS = {
    "the active one": "dispatch(query, mask)",
    "by name": "dispatch(query, mask, backend='reads')",
    "straight from the class": "Backends.known['reads'](query, mask)",
}


@pytest.mark.parametrize("call", cases(CALLS))
def test_registered_by_a_classmethod(check, call):
    imported = "Backends" if call.startswith("Backends") else "dispatch"
    verify(check, {"backends.py": BACKENDS, "model.py": TORCH + MODEL.format(imported=imported, call=call)})


def test_registered_elsewhere(check):
    """What another module registers is called as well; more than eight functions are."""
    more = "".join(
        f"""
        @Backends.register("{number}")
        def number_{number}(query, mask=None):
            return query * query.max().item()  # expect: CG102
        """
        for number in range(12)
    )
    files = {
        "backends.py": BACKENDS,
        "more.py": "from backends import Backends\n" + textwrap.dedent(more),
        "model.py": TORCH + MODEL.format(imported="dispatch", call="dispatch(query, mask)"),
    }
    verify(check, files)


def test_other_contents(check):
    """A table that the decorated functions themselves do not go into holds none of them."""
    code = """
    class Calls:
        counts = {}

        @classmethod
        def counted(cls, function):
            cls.counts[function.__name__] = 0
            return function


    @Calls.counted
    def reads(x):
        return x.sum().item()


    class Model(nn.Module):
        def forward(self, x: torch.Tensor):
            for name in Calls.counts:
                Calls.counts[name](x)
            return x
    """
    verify(check, {"model.py": TORCH + textwrap.dedent(code)})
