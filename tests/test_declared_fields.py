"""Fields that code declares to stay on the host, by the call that a profile names: which names that makes host values of."""

from __future__ import annotations

import textwrap

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


@pytest.mark.parametrize(
    ("field", "taken", "wait"),
    [
        ("grid_thw", 'kwargs.pop("grid_thw", None)', False),
        ("grid_thw", 'kwargs.get("grid_thw")', False),
        ("grid_thws", 'kwargs.pop("grid_thws", None)', False),
        ("grids", 'kwargs.pop("other", None)', True),
    ],
)
def test_what_is_taken_by_the_name_of_a_field_is_that_field(write, field, taken, wait):
    model = MODEL.format(name=field, flag=KEPT)
    model += f"""

    def rows(sizes: torch.Tensor):
        return sizes.tolist()


    class Model(nn.Module):
        def forward(self, x: torch.Tensor, **kwargs):
            sizes = {taken}
            return x * len(rows(sizes))
"""
    model = "\n    import torch\n    from torch import nn\n" + model
    tower = "class Tower: pass\n"
    assert waits(write, {"model.py": model, "tower.py": tower}) is wait


def test_a_field_is_declared_by_an_item_of_a_dict_as_well(write):
    model = """
        from fields import FieldConfig
        import tower

        config = {}
        config["image_grid_thw"] = FieldConfig.batched("image", keep_on_cpu=True)
    """
    assert not waits(write, {"model.py": model})


def test_a_model_takes_over_the_fields_of_the_models_that_it_extends(write):
    base = OTHER.format(name="image_grid_thw", flag=KEPT)
    away = {"far.py": OTHER.format(name="grid_thw", flag=MOVED), "base.py": base, "middle.py": "import base\n"}
    more = 'from fields import FieldConfig\nimport base\nrates = dict(rate=FieldConfig.batched("video"))\n'
    tower = "import middle\n" + textwrap.dedent(TOWER)
    assert waits(write, away)
    assert not waits(write, {**away, "tower.py": tower})
    assert not waits(write, {**away, "tower.py": tower, "middle.py": more})
