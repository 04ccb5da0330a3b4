"""Each module of the application can be imported, in any order."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import termchat

FOLDER = Path(termchat.__file__).parent
NAMES = [
    ".".join(("termchat", *file.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
    for file in sorted(FOLDER.rglob("*.py"))
    if file.name != "__main__.py"
]


@pytest.mark.slow
def test_each_module_can_be_imported() -> None:
    """In this order, and so in any: none needs another in a circle."""
    assert len(NAMES) > 100
    script = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", script, *NAMES], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_is_data_and_needs_no_command_code() -> None:
    script = (
        "import sys, termchat.tui.command, termchat.tui.keymap, termchat.tui.screens.help;"
        "print([name for name in sys.modules if name.startswith('termchat.tui.commands')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "[]"


def needs_of(module: str) -> set[str]:
    """The modules that one names in its imports, those for types alone too."""
    file = FOLDER.parent / (module.replace(".", "/") + ".py")
    package = module.rpartition(".")[0] if file.is_file() else module
    tree = ast.parse((file if file.is_file() else file.with_suffix("") / "__init__.py").read_text())
    needed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*above, *([node.module] if node.module else [])])
            needed |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return {name for name in needed if not f"{module}.".startswith(f"{name}.")}  # its packages aside


def in_circles(needs: dict[str, set[str]]) -> set[str]:
    """Of modules with what they need, those that need each other or one that does."""
    left = dict(needs)
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    return set(left)


def test_no_modules_need_each_other_in_a_circle() -> None:
    """Not for their types, and not inside of a function either."""
    needs = {name: needs_of(name) & set(NAMES) for name in NAMES}
    assert sum(map(len, needs.values())) > 500
    assert in_circles(needs) == set()
    needs["termchat.tui.command"].add("termchat.tui.screens.main")  # as it was once
    assert in_circles(needs) >= {"termchat.tui.command", "termchat.tui.screens.main"}
