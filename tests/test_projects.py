"""What is around a path: its package, its project, and the files that are known when it is checked."""

from __future__ import annotations

import os

import pytest

from cgsafe import projects
from cgsafe.source import known_files, package_root, project_folder, project_roots


def test_the_import_root_is_above_the_top_most_package(write):
    root = write({"src/pkg/__init__.py": "", "src/pkg/sub/__init__.py": "", "src/pkg/sub/a.py": "", "src/b.py": ""})
    assert package_root("src/pkg/sub/a.py") == package_root("src/pkg/__init__.py") == str(root / "src")
    assert package_root("src/b.py") == str(root / "src")


def test_folders_without_init_inside_a_package_belong_to_it(write):
    root = write(
        {"pkg/__init__.py": "", "pkg/models/x/a.py": "", "pkg/models/y/__init__.py": "", "pkg/models/y/b.py": ""}
    )
    assert package_root("pkg/models/x/a.py") == str(root)
    assert package_root("pkg/models/y/b.py") == str(root)


def test_deep_folders_without_init_belong_to_the_package_too(write):
    write({"pack/__init__.py": "", "pack/run/layers/attention/vision.py": ""})
    assert package_root("pack/run/layers/attention/vision.py") == os.getcwd()


def test_a_stray_init_beside_the_project_file_does_not_swallow_the_source_folder(write):
    root = write(
        {"proj/pyproject.toml": "", "proj/__init__.py": "", "proj/src/pkg/__init__.py": "", "proj/src/pkg/a.py": ""}
    )
    assert package_root("proj/src/pkg/a.py") == str(root / "proj/src")
    assert project_folder("proj/src/pkg/a.py") == str(root / "proj")


@pytest.mark.parametrize("marker", ["pyproject.toml", "setup.py", "setup.cfg", ".git"])
def test_the_project_is_the_nearest_marked_folder(write, marker):
    root = write({"pyproject.toml": "", f"inner/{marker}": "", "inner/scripts/a.py": "", "b.py": ""})
    assert project_folder("inner/scripts/a.py") == str(root / "inner")
    assert project_folder("b.py") == str(root)


def test_without_a_marker_the_project_is_the_import_root(write):
    root = write({"x/pkg/__init__.py": "", "x/pkg/a.py": ""})
    around = project_roots(["x/pkg/a.py"])["x/pkg/a.py"]
    assert (around.import_root, around.package, around.project) == (
        str(root / "x"),
        str(root / "x/pkg"),
        str(root / "x"),
    )


def test_known_is_the_whole_package_around_a_path(write):
    root = write(
        {
            "pyproject.toml": "",
            "pkg/__init__.py": "",
            "pkg/models/a/__init__.py": "",
            "pkg/models/a/m.py": "",
            "pkg/ops.py": "",
            "other/__init__.py": "",
            "script.py": "",
        }
    )
    names = ["pkg/__init__.py", "pkg/models/a/__init__.py", "pkg/models/a/m.py", "pkg/ops.py"]
    assert known_files(["pkg/models/a"]) == known_files(["pkg/ops.py"]) == [str(root / name) for name in names]


def test_known_is_the_project_around_a_script(write):
    root = write(
        {"proj/setup.cfg": "", "proj/tools/a.py": "", "proj/pkg/__init__.py": "", "proj/pkg/b.py": "", "c.py": ""}
    )
    names = ["proj/pkg/__init__.py", "proj/pkg/b.py", "proj/tools/a.py"]
    assert known_files(["proj/tools/a.py"]) == known_files(["proj/tools"]) == [str(root / name) for name in names]


def test_known_without_a_project_is_what_lies_beside_a_script(write):
    root = write({"a.py": "", "helper.py": "", "pkg/__init__.py": "", "pkg/m.py": "", "big/x.py": ""})
    assert known_files(["a.py"]) == [str(root / n) for n in ("a.py", "helper.py", "pkg/__init__.py", "pkg/m.py")]
    assert known_files(["big"]) == [str(root / "big/x.py")]


def test_known_holds_every_file_that_is_checked(write):
    root = write({".git/HEAD": "", ".gitignore": "gen/", "gen/a.py": "", "b.py": "", "tool": ""})
    assert known_files(["gen", "tool"]) == [str(root / name) for name in ("b.py", "gen/a.py", "tool")]


def test_known_around_standard_input_is_the_project_of_the_working_directory(write):
    root = write({"pyproject.toml": "", "pkg/__init__.py": ""})
    assert known_files(["-"]) == [str(root / "pkg/__init__.py")]


def test_the_home_folder_is_no_project_even_if_marked(write, tmp_path, monkeypatch):
    root = write({"home/.git/HEAD": "", "home/__init__.py": "", "home/a.py": "", "home/b.py": "", "home/work/c.py": ""})
    monkeypatch.setenv("HOME", str(root / "home"))
    monkeypatch.setenv("USERPROFILE", str(root / "home"))
    assert project_folder("home/a.py") == ""
    assert known_files(["home/a.py"]) == [str(root / "home/a.py")]
    assert known_files(["home/work"]) == [str(root / "home/work/c.py")]


def test_folders_of_all_and_sundry():
    common = projects.common_folders()
    assert {os.path.abspath(os.sep), os.path.expanduser("~")} <= common


def test_missing_paths_have_nothing_around_them(write):
    write({"pyproject.toml": "", "a.py": ""})
    assert known_files(["gone/b.py"]) == []
