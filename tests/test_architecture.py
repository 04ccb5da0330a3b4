"""docs/architecture.md has a line for every module, and what holds for all of them."""

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("termchat", "engine", "kernels")


def test_every_module_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    missing = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            module = file.relative_to(ROOT / package).with_suffix("")
            name = str(module)
            if file.stem not in ("__init__", "__main__") and f"`{name}`" not in text:
                missing.append(f"{package}/{name}")
    assert not missing


def test_no_module_is_described_twice() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for section in text.split("\n### "):
        names = re.findall(r"^\| `([\w/]+)` \|", section, re.MULTILINE)
        assert sorted(names) == sorted(set(names))


def test_every_file_of_the_library_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    files = {file.stem for file in (ROOT / "kernels" / "native" / "cpp").iterdir()}
    described = set(re.findall(r"`cpp/(\w+)`", text))
    assert files == described


def test_no_path_is_asked_what_it_is_by_a_method_that_raises() -> None:
    """Path.is_dir() and its like raise where a folder is closed to the user or a name is too long; os.path's
    answer False."""
    asked = re.compile(r"\.(is_dir|is_file|is_symlink|exists)\(\)")
    files = [file for name in PACKAGES for file in (ROOT / name).rglob("*.py")]
    assert not [str(file) for file in files if asked.search(file.read_text(encoding="utf-8"))]


def test_the_product_imports_no_double_that_tests_use() -> None:
    imported = re.compile(r"(from|import) [\w.]*\btesting\b")
    files = [file for name in PACKAGES for file in (ROOT / name).rglob("*.py")]
    assert not [str(file) for file in files if imported.search(file.read_text(encoding="utf-8"))]


def test_scripts_and_benchmarks_import_what_there_is() -> None:
    """No test runs them all, so a name that has changed would be missed."""
    missing = []
    for file in (*(ROOT / "scripts").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] not in PACKAGES:
                continue
            module = import_module(node.module)
            names = [alias.name for alias in node.names]
            missing += [
                f"{file.name}: {node.module}.{name}"
                for name in names
                if not hasattr(module, name) and find_spec(f"{node.module}.{name}") is None
            ]
    assert not missing


def test_no_fixture_changes_the_product_for_more_than_one_test() -> None:
    """What is patched for a session is patched for whatever other files come after, in any order."""
    changing = []
    for file in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lasting = any(
                    'scope="' in ast.unparse(each).replace("'", '"') for each in node.decorator_list
                )
                body = ast.unparse(node)
                if lasting and "MonkeyPatch" in body and "from textual" not in body:
                    changing.append(f"{file.name}: {node.name}")
    assert not changing
