"""Each module of the application can be imported first, whatever it needs of the others."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import termchat

ALONE = """
import importlib, sys
failed = []
for name in sys.argv[1:]:
    for known in [each for each in sys.modules if each.split(".")[0] == "termchat"]:
        del sys.modules[known]  # what they import from elsewhere stays, which is what takes the time
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")
print("\\n".join(failed))
"""


def test_each_module_can_be_imported_first() -> None:
    folder = Path(termchat.__file__).parent
    names = [
        ".".join(("termchat", *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for file in sorted(folder.rglob("*.py"))
        if file.name != "__main__.py"
    ]
    assert len(names) > 100
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *names], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_a_command_is_data_and_needs_no_command_code() -> None:
    script = (
        "import sys, termchat.tui.command, termchat.tui.keymap, termchat.tui.screens.help;"
        "print([name for name in sys.modules if name.startswith('termchat.tui.commands')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def imports_of(file: Path, root: Path) -> set[Path]:
    """The files of a package that a module's text names in its imports, whether they are carried out or are
    there for the types alone.
    """
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else root.parent
            base = base.joinpath(*(node.module or "").split("."))
            for name in ("", *(alias.name for alias in node.names)):
                each = base / name
                found |= {each.with_suffix(".py"), each / "__init__.py"} - {file}
        elif isinstance(node, ast.Import):
            found |= {root.parent.joinpath(*each.name.split(".")).with_suffix(".py") for each in node.names}
    return {each for each in found if each.is_relative_to(root) and each.is_file()}


def circle(root: Path) -> list[str]:
    """Modules that import each other in a circle; none if there is none."""
    graph = {file: imports_of(file, root) for file in root.rglob("*.py")}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(file.relative_to(root)) for file in error.args[1]]
    return []


def test_no_modules_of_the_full_screen_import_each_other_in_a_circle() -> None:
    root = Path(termchat.__file__).parent / "tui"
    assert sum(len(imports_of(file, root)) for file in root.rglob("*.py")) > 200
    assert circle(root) == []


@pytest.mark.parametrize("back", ["from .first import b", "if TYPE_CHECKING:\n    from ..part import first"])
def test_a_circle_is_seen(tmp_path: Path, back: str) -> None:
    (tmp_path / "part").mkdir()
    for name, text in {"__init__": "", "first": "def f():\n    from . import second", "second": back}.items():
        (tmp_path / "part" / f"{name}.py").write_text(text)
    assert set(circle(tmp_path / "part")) == {"first.py", "second.py"}
