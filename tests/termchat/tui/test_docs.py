"""docs/ui.md lists the commands that there are."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_of_keys_and_commands_is_the_registrys() -> None:
    spec = importlib.util.spec_from_file_location("ui_docs", ROOT / "scripts" / "ui_docs.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "ui.md").read_text(encoding="utf-8")
    assert script.table() in page, "run: python scripts/ui_docs.py"
    for name in script.PICTURES:
        assert f"({name}.svg)" in page
        assert (ROOT / "docs" / f"{name}.svg").stat().st_size < 120_000
