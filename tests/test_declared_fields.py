"""Fields that code declares to stay on the host, by the call that a profile names: which names that makes host values of."""

from __future__ import annotations

import pytest

from cgsafe import engine
from cgsafe.config import load, merge
from cgsafe.rule import load_rules

PROFILE = "[profile.host_names]\ndeclared_by = ['FieldConfig', 'keep_on_cpu=True']\n"
FIELDS = """
    class FieldConfig:
        @staticmethod
        def batched(modality, keep_on_cpu=False):
            return modality
"""
TOWER = """
    import torch
    from torch import nn


    class Tower(nn.Module):
        def forward(self, x: torch.Tensor, grid_thw: torch.Tensor):
            return x * len(grid_thw.tolist())
"""
MODEL = """
    from fields import FieldConfig
    from tower import Tower


    def fields(sizes):
        return dict(
            pixels=FieldConfig.batched("image"),
            {name}=FieldConfig.batched("image", {flag}),
        )
"""
OTHER = """
    from fields import FieldConfig

    OTHERS = {{"{name}": FieldConfig.batched("video", {flag})}}
"""
KEPT, MOVED = "keep_on_cpu=True", "keep_on_cpu=False"


def waits(write, files, profile=PROFILE):
    write({"fields.py": FIELDS, "tower.py": TOWER, "cgsafe.toml": profile, **files})
    rules, _ = load_rules()
    report = engine.check(["."], merge(load(), jobs=1, cache=False), rules)
    assert not report.errors
    return bool(report.findings)


@pytest.mark.parametrize(
    ("name", "flag", "wait"),
    [
        ("grid_thw", KEPT, False),
        ("image_grid_thw", KEPT, False),  # what serves images and videos calls both of them by the end of the name
        ("grid_thw", MOVED, True),
        ("grids", KEPT, True),
        ("thw", KEPT, True),
    ],
)
def test_a_field_is_where_its_declaration_says(write, name, flag, wait):
    assert waits(write, {"model.py": MODEL.format(name=name, flag=flag)}) is wait


def test_without_a_profile_a_declaration_means_nothing(write):
    assert waits(write, {"model.py": MODEL.format(name="grid_thw", flag=KEPT)}, profile="")


def test_the_files_around_count_before_others(write):
    far = {"other.py": OTHER.format(name="grid_thw", flag=KEPT)}
    assert not waits(write, far)
    assert waits(write, {**far, "model.py": MODEL.format(name="grids", flag=KEPT)})
    assert waits(write, {**far, "model.py": MODEL.format(name="grid_thw", flag=MOVED)})


def test_where_declarations_far_away_contradict_each_other_none_counts(write):
    one, two = OTHER.format(name="grid_thw", flag=KEPT), OTHER.format(name="grid_thw", flag=MOVED)
    assert waits(write, {"one.py": one, "two.py": two})


def test_a_name_with_a_meaning_of_its_own_keeps_it(write):
    tower = TOWER.replace("grid_thw", "attention_mask")
    model = MODEL.format(name="feature_attention_mask", flag=KEPT)
    assert waits(write, {"tower.py": tower, "model.py": model})
