"""docs/architecture.md has a line for every module."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_module_of_the_application_and_the_engine_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    missing = []
    for package in ("termchat", "engine"):
        for file in sorted((ROOT / package).rglob("*.py")):
            module = file.relative_to(ROOT / package).with_suffix("")
            name = str(module)
            if file.stem not in ("__init__", "__main__") and f"`{name}`" not in text:
                missing.append(f"{package}/{name}")
    assert not missing
