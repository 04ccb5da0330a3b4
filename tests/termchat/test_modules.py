"""Each module of the application can be imported first, whatever it needs of the others."""

import subprocess
import sys
from pathlib import Path

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
