"""Which folders are installed as which packages; everything else about the distribution is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

# Namespace packages, so that a folder counts even without an `__init__.py` (data folders, examples).
SKIP = ["__pycache__", "*.__pycache__"]


def renamed(folder: str, name: str, without: tuple[str, ...] = ()) -> list[str]:
    """The packages that `folder` and everything below it become when it is installed as `name`."""
    return [name, *(f"{name}.{below}" for below in find_namespace_packages(folder, exclude=[*SKIP, *without]))]


tool = find_namespace_packages(include=["cgsafe", "cgsafe.*"], exclude=SKIP)
# The pages about rules are read where they are written; `cgsafe explain` says the same.
rules = renamed("rules", "cgsafe_rules", without=("docs",))
# The examples go along as `cgsafe_rules/fixtures/CODE/`, because `cgsafe explain` shows them.
fixtures = renamed("fixtures", "cgsafe_rules.fixtures")

setup(
    packages=[*tool, *rules, *fixtures],
    package_dir={"cgsafe_rules": "rules", "cgsafe_rules.fixtures": "fixtures"},
    package_data={
        **{package: ["*.toml", "*.json", "*.html", "*.md", "*.svg", "py.typed"] for package in [*tool, *rules]},
        **{package: ["*"] for package in fixtures},
    },
)
