"""The Source room: which files are found, and what they say."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from cgsafe import source
from cgsafe.findings import Problem
from cgsafe.source import Source, discover, read

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")


def found(*paths: str, exclude: tuple[str, ...] = ()) -> list[str]:
    """What discover finds, where nothing is wrong."""
    files, problems = discover(list(paths), exclude)
    assert problems == []
    return files


def text_of(path: Path) -> Source:
    got = read(str(path))
    assert isinstance(got, Source), got
    return got


def problem_of(path: Path) -> Problem:
    got = read(str(path))
    assert isinstance(got, Problem), got
    return got


# -- discover ----------------------------------------------------------------------------------------------------------


def test_a_folder_gives_its_python_files_sorted_and_named_as_it_was(write):
    write({"pkg/b.py": "", "pkg/a.py": "", "pkg/sub/c.py": "", "pkg/stub.pyi": "", "pkg/note.txt": ""})
    assert found("pkg") == ["pkg/a.py", "pkg/b.py", "pkg/sub/c.py"]
    assert found("pkg/") == ["pkg/a.py", "pkg/b.py", "pkg/sub/c.py"]
    assert found("./pkg") == ["./pkg/a.py", "./pkg/b.py", "./pkg/sub/c.py"]


def test_the_current_folder_adds_no_prefix(write):
    write({"a.py": "", "pkg/b.py": ""})
    assert found(".") == found("./") == ["a.py", "pkg/b.py"]


def test_absolute_paths_stay_absolute(write):
    root = write({"a.py": ""})
    assert found(str(root)) == [str(root / "a.py")]


def test_a_named_file_is_taken_whatever_it_is_called_or_ignored_by(write):
    write({".gitignore": "*.py\n", "a.py": "", "tool": "x = 1"})
    assert found("a.py", "tool", exclude=("a.py",)) == ["a.py", "tool"]


def test_a_named_stub_holds_no_code(write):
    write({"a.pyi": ""})
    assert found("a.pyi") == []


def test_standard_input_is_a_path_of_its_own(write):
    write({"a.py": ""})
    assert found("-", "a.py", "-") == ["-", "a.py"]


def test_a_file_reached_twice_is_taken_once_under_its_first_name(write):
    root = write({"pkg/a.py": ""})
    assert found("pkg/a.py", "pkg", ".", str(root)) == ["pkg/a.py"]
    assert found("./pkg", "pkg/a.py") == ["./pkg/a.py"]


def test_a_missing_path_is_a_problem_and_the_rest_goes_on(write):
    write({"a.py": ""})
    files, problems = discover(["gone", "a.py", "with\0nul"])
    assert files == ["a.py"]
    assert [(p.path, p.line) for p in problems] == [("gone", 0), ("with\0nul", 0)]
    assert problems[0].message == "no such file or folder"
    assert "NUL" in problems[1].message


@pytest.mark.parametrize("name", [".git", "__pycache__", "node_modules", ".venv", "venv", ".tox", ".mypy_cache"])
def test_folders_that_hold_no_code_of_the_project_are_skipped(write, name):
    write({"a.py": "", f"{name}/b.py": "", f"pkg/{name}/c.py": ""})
    assert found(".") == ["a.py"]
    assert found(name) == [f"{name}/b.py"], "unless they are named"


def test_a_virtual_environment_is_known_by_its_own_file(write):
    write({"a.py": "", "env310/pyvenv.cfg": "", "env310/lib/b.py": ""})
    assert found(".") == ["a.py"]


def test_build_folders_are_skipped_beside_a_project_file_only(write):
    write({"proj/setup.py": "", "proj/build/lib/a.py": "", "proj/pkg/build/b.py": ""})
    assert found("proj") == ["proj/pkg/build/b.py", "proj/setup.py"]


def test_gitignore_files_nest_and_the_inner_one_decides(write):
    write(
        {
            ".gitignore": "gen_*.py\n/top.py\nout/\n",
            "top.py": "",
            "pkg/top.py": "",
            "pkg/gen_a.py": "",
            "pkg/.gitignore": "!gen_a.py\nlocal.py\n",
            "pkg/local.py": "",
            "pkg/out/x.py": "",
            "gen_b.py": "",
            "local.py": "",
        }
    )
    assert found(".") == ["local.py", "pkg/gen_a.py", "pkg/top.py"]


def test_gitignore_files_above_a_folder_count_up_to_the_top_of_the_repository(write):
    write(
        {
            ".gitignore": "*.py",
            "repo/.git/HEAD": "",
            "repo/.gitignore": "gen.py",
            "repo/a/gen.py": "",
            "repo/a/b.py": "",
        }
    )
    assert found("repo/a") == ["repo/a/b.py"]


def test_naming_an_ignored_folder_shows_what_is_in_it(write):
    write({".git/HEAD": "", ".gitignore": "gen/\n", "gen/deep/a.py": "", "b.py": ""})
    assert found("gen") == ["gen/deep/a.py"]
    assert found("gen/deep") == ["gen/deep/a.py"]
    assert found(".") == ["b.py"]


def test_a_broken_line_in_a_gitignore_costs_only_itself(write):
    write({".gitignore": "!\n//\n***bad[\ngen.py\n", "gen.py": "", "a.py": ""})
    assert found(".") == ["a.py"]


@needs_fifo
def test_a_gitignore_that_is_a_pipe_blocks_nothing(write):
    root = write({"a.py": ""})
    os.mkfifo(root / ".gitignore")
    assert found(".") == ["a.py"]


@pytest.mark.skipif(subprocess.run(["git", "--version"], capture_output=True).returncode != 0, reason="needs git")
def test_gitignore_agrees_with_git(write):
    root = write(
        {
            ".gitignore": r"""
            *.tmp.py
            /only_top/
            foo/bar.py
            **/deep/*.py
            !**/deep/keep.py
            space\ name.py
            #x.py
            \#y.py
            a/**/z.py
            [ab].py
            """,
            **dict.fromkeys(
                """x.tmp.py only_top/a.py sub/only_top/b.py foo/bar.py sub/foo/bar.py deep/a.py q/deep/keep.py
                q/deep/no.py #x.py #y.py a/z.py a/b/c/z.py a.py c.py sub/b.py sub/ab.py""".split(),
                "",
            ),
            "space name.py": "",
            "sub/.gitignore": "!b.py\n",
        }
    )
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q"], cwd=root, check=True, env=env)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z", "*.py"],
        cwd=root,
        check=True,
        capture_output=True,
        env=env,
    ).stdout.decode()
    expected = sorted(listed.rstrip("\0").split("\0"))
    assert len(expected) > 5
    assert found(".") == expected


def test_exclude_patterns_are_those_of_gitignore(write):
    write({"tests/a.py": "", "pkg/tests/b.py": "", "pkg/c.py": "", "pkg/gen/d.py": "", "gen/e.py": ""})
    assert found(".", exclude=("tests",)) == ["gen/e.py", "pkg/c.py", "pkg/gen/d.py"]
    assert found(".", exclude=("tests/", "/gen")) == ["pkg/c.py", "pkg/gen/d.py"]
    assert found(".", exclude=("pkg/*.py", "tests", "gen/**")) == ["pkg/gen/d.py"]
    assert found("pkg", exclude=("pkg/gen",)) == ["pkg/c.py", "pkg/tests/b.py"]
    assert found(".", exclude=("*.py", "!c.py")) == ["pkg/c.py"]


def test_exclude_means_the_same_for_a_tree_elsewhere(write, tmp_path, monkeypatch):
    write({"tests/tree/tests/a.py": "", "tests/tree/b.py": "", "tests/tree/gen/c.py": "", "here/x.py": ""})
    monkeypatch.chdir(tmp_path / "here")
    tree = str(tmp_path / "tests" / "tree")
    # A folder above the given one is called `tests` as well, which must not matter.
    assert found(tree, exclude=("tests",)) == [f"{tree}/b.py", f"{tree}/gen/c.py"]
    assert found(tree, exclude=("../tests/tree/gen", "tests")) == [f"{tree}/b.py"]
    assert found(tree, exclude=(f"{tree}/gen",)) == [f"{tree}/b.py", f"{tree}/tests/a.py"]


def test_exclude_below_a_folder_whose_name_looks_like_a_pattern(write, tmp_path, monkeypatch):
    write({"a[1]*/tests/a.py": "", "a[1]*/b.py": ""})
    monkeypatch.chdir(tmp_path / "a[1]*")
    assert found(".", exclude=("tests",)) == ["b.py"]
    assert found(".", exclude=("/tests",)) == ["b.py"]


def test_a_pattern_that_means_nothing_is_a_problem(write):
    write({"a.py": ""})
    files, problems = discover(["."], ["/"])
    assert files == ["a.py"]
    assert "exclude" in problems[0].message


def test_symlink_loops_end_and_the_real_name_wins(write):
    root = write({"proj/pyproject.toml": "", "proj/pkg/b.py": "", "proj/pkg/sub/c.py": ""})
    (root / "proj/pkg/loop").symlink_to(root / "proj")
    (root / "proj/pkg/sub/self").symlink_to(root / "proj/pkg/sub")
    (root / "proj/pkg/a_link.py").symlink_to("b.py")
    assert found("proj") == ["proj/pkg/b.py", "proj/pkg/sub/c.py"]


def test_links_are_followed_within_the_project_and_not_out_of_it(write):
    root = write({"proj/pyproject.toml": "", "proj/shared/s.py": "", "proj/models/m.py": "", "outside/o.py": ""})
    (root / "proj/models/shared").symlink_to("../shared")
    (root / "proj/models/outside").symlink_to("../../outside")
    (root / "proj/models/one.py").symlink_to("../../outside/o.py")
    (root / "proj/models/broken.py").symlink_to("nowhere.py")
    assert found("proj/models") == ["proj/models/m.py", "proj/models/one.py", "proj/models/shared/s.py"]


def test_a_linked_folder_that_is_named_is_followed(write):
    root = write({"real/a.py": ""})
    (root / "link").symlink_to("real")
    assert found("link") == ["link/a.py"]


def test_deep_folders(write):
    name = "/".join(["d"] * 900)
    write({f"{name}/a.py": ""})
    assert found(".") == [f"{name}/a.py"]


def test_a_folder_that_may_not_be_read_is_a_problem(write, monkeypatch):
    write({"a.py": "", "closed/b.py": ""})
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(source.os, "scandir", refuse)  # a mode of 0 would not stop root
    files, problems = discover(["."])
    assert files == ["a.py"]
    assert problems == [Problem("closed", 0, "cannot read it: Permission denied")]


# -- read --------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_as_it_is(write):
    root = write({"a.py": b"x = 1\n"})
    got = text_of(root / "a.py")
    assert (got.raw, got.text, got.encoding) == (b"x = 1\n", "x = 1\n", "utf-8")
    assert got.path == str(root / "a.py")


def test_the_digest_is_that_of_the_bytes(write):
    root = write({"a.py": b"x = 1\n", "b.py": b"x = 1\n", "c.py": b"x = 1\r\n"})
    a, b, c = (text_of(root / name).digest for name in ("a.py", "b.py", "c.py"))
    assert a == b != c


def test_an_empty_file_is_fine(write):
    root = write({"a.py": b""})
    assert text_of(root / "a.py").text == ""
    assert text_of(root / "a.py").lines == [""]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_are_those_of_ast(write, end):
    body = [b"a = 1", b"\x0c", b"'''", "\u2028 \x85 \x1c".encode(), b"'''", b"if a:", b"\x0c    b = 2", b""]
    root = write({"a.py": end.join(body)})
    got = text_of(root / "a.py")
    tree = ast.parse(got.text)
    assert tree.body[-1].lineno == 6
    assert tree.body[-1].body[0].lineno == 7  # type: ignore[attr-defined]
    assert got.lines[6].strip() == "b = 2"
    assert len(got.lines) == len(body)


def test_a_byte_order_mark_is_no_text(write):
    root = write({"a.py": b"\xef\xbb\xbfx = '\xc3\xa9'\n", "b.py": b"\xef\xbb\xbf# coding: utf-8\nx = 1\n"})
    assert text_of(root / "a.py").text == "x = '\u00e9'\n"
    assert text_of(root / "a.py").encoding == "utf-8-sig"
    assert text_of(root / "b.py").text.startswith("# coding")


@pytest.mark.parametrize(
    "head",
    [
        b"# -*- coding: latin-1 -*-\n",
        b"#!/usr/bin/python\n# vim: set fileencoding=iso-8859-1 :\n",
        b"\n# coding=latin-1-unix\r\n",
        b"#!/usr/bin/python\r# coding: L1\r",
    ],
)
def test_a_declared_encoding_is_used(write, head):
    root = write({"a.py": head + b"x = '\xe9'\n"})
    assert text_of(root / "a.py").text.endswith("x = '\u00e9'\n")


@pytest.mark.parametrize(
    "head", [b"x = 1\n# coding: latin-1\n", b"\n\n# coding: latin-1\n", b"x = '# coding: latin-1'\n"]
)
def test_a_declaration_elsewhere_counts_for_nothing(write, head):
    root = write({"a.py": head + b"x = '\xe9'\n"})
    problem = problem_of(root / "a.py")
    assert problem.line == head.count(b"\n") + 1
    assert f"offset {len(head) + 5}" in problem.message
    assert "UTF-8" in problem.message


def test_the_offset_of_a_broken_byte_counts_the_mark(write):
    root = write({"a.py": b"\xef\xbb\xbfab\n\xff"})
    assert problem_of(root / "a.py") == Problem(
        str(root / "a.py"), 2, "not valid utf-8: byte 0xff at offset 6; no encoding is declared, so UTF-8 is expected"
    )


@pytest.mark.parametrize("name", ["no-such-thing", "rot13", "zlib", "../../evil", "hex"])
def test_an_encoding_that_is_none_is_told(write, name):
    root = write({"a.py": f"\n# coding: {name}\nx = 1\n".encode()})
    problem = problem_of(root / "a.py")
    assert problem.line == 2
    assert "is unknown" in problem.message


def test_a_mark_and_another_encoding_contradict(write):
    root = write({"a.py": b"\xef\xbb\xbf# coding: latin-1\n"})
    assert "byte order mark" in problem_of(root / "a.py").message


def test_encodings_that_make_what_no_source_holds(write):
    root = write(
        {"nul.py": b"# coding: unicode_escape\nx = '\\x00'\n", "lone.py": b"# coding: unicode_escape\n'\\ud800'"}
    )
    assert "NUL" in problem_of(root / "nul.py").message
    assert "cannot decode" in problem_of(root / "lone.py").message


def test_a_nul_byte_is_told_with_its_line(write):
    root = write({"a.py": b"a = 1\r\nb = 2\rc = 3\nd\0 = 4\n"})
    assert problem_of(root / "a.py") == Problem(str(root / "a.py"), 4, "NUL byte at offset 20: not Python source")


def test_utf_16_is_told_as_such(write):
    root = write({"a.py": "x = 1\n".encode("utf-16")})
    assert "UTF-16" in problem_of(root / "a.py").message


@needs_fifo
def test_a_named_pipe_is_refused_and_does_not_block(write):
    root = write({"a.py": ""})
    os.mkfifo(root / "pipe.py")
    assert found(".") == ["a.py", "pipe.py"]
    assert problem_of(root / "pipe.py").message == "not a regular file but a named pipe"


def test_other_things_that_are_no_files(write):
    root = write({"folder.py/a.txt": ""})
    assert problem_of(root / "folder.py").message == "not a regular file but a folder"
    assert problem_of(root / "gone.py").message == "no such file or folder"
    if os.path.exists("/dev/zero"):
        assert problem_of(Path("/dev/zero")).message == "not a regular file but a device"


def test_a_file_that_may_not_be_read(write, monkeypatch):
    root = write({"a.py": ""})

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(source.os, "open", refuse)  # a mode of 0 would not stop root
    assert problem_of(root / "a.py").message == "cannot read it: Permission denied"


def test_standard_input_is_decoded_like_a_file():
    got = read("-", b"# coding: latin-1\nx = '\xe9'")
    assert isinstance(got, Source)
    assert got.text.endswith("'\u00e9'")
