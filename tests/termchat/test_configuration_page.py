"""docs/configuration.md is what the code that checks settings, models and themes says of them."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest

from engine import EngineConfig
from termchat.config import Config
from termchat.download.errors import CA_VARIABLES
from termchat.model_entry import ModelEntry
from termchat.registry_file import MODEL_KEYS, SOURCE_KEYS, read_registries
from termchat.settings import ENGINE, OPTIONS, SAMPLING, allowed, help_of
from termchat.themes import TABLES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("docs", ROOT / "scripts" / "configuration_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_code(script) -> None:
    assert script.page(PAGE) == PAGE, "run: python scripts/configuration_docs.py"
    for name in script.TABLE_OF:
        assert f"<!-- {name} -->" in PAGE
    keys = {*OPTIONS, *SAMPLING, *ENGINE, *MODEL_KEYS, *(key for kind in SOURCE_KEYS for key in kind)}
    keys |= {f"[{name}]" for name in TABLES} | {key for table in TABLES.values() for key in table}
    assert not {key for key in keys if f"`{key}`" not in PAGE}


def test_a_table_that_has_changed_is_noticed(script) -> None:
    changed = PAGE.replace("| `threads` |", "| `thread` |")
    assert changed != PAGE
    assert script.page(changed) == PAGE


def test_every_setting_says_what_it_is_for_and_what_it_may_be() -> None:
    assert {*ENGINE, "model", "paired_draft", "findings"} == {field.name for field in fields(EngineConfig)}
    for table, names in (("sampling", SAMPLING), ("engine", ENGINE)):
        for name in names:
            assert help_of(f"{table}.{name}")
            assert allowed(table, name)
    assert all(map(help_of, OPTIONS))
    assert help_of("keys.chat.delete") == ""
    assert allowed("sampling", "top_p") == "a number in [0, 1]"
    assert allowed("engine", "block_size") == "16 or 32 tokens"


def test_the_example_of_settings_is_one(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(EXAMPLES[0])
    config = Config.load(file)
    assert config.warnings == ()
    assert config.given == {*OPTIONS}
    assert config.keys == {"chat.delete": "ctrl+x"}


def test_the_example_of_models_is_one(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(EXAMPLES[1].replace('"..."', f'"{"0" * 64}"'))
    found = read_registries(ROOT / "models.toml", file)
    assert found.warnings == ()
    assert found.default == "mine"
    entry = found.entries["mine"]
    assert len(entry.sources) == len(SOURCE_KEYS)
    derived = {"name", "part_sha256", "files", "folder"}
    assert {*MODEL_KEYS, *derived} == {field.name for field in fields(ModelEntry)}
    for name in MODEL_KEYS.keys() - {"sources"}:
        assert re.search(rf"^{name} = ", EXAMPLES[1], re.MULTILINE), name


def test_every_variable_that_is_asked_for_stands_there() -> None:
    lines = [
        line
        for file in (ROOT / "termchat").rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if "environ" in line
    ]
    asked = {*CA_VARIABLES, *(name for line in lines for name in re.findall(r'"([A-Z_]{4,})"', line))}
    assert {"NO_COLOR", "EDITOR", "HF_ENDPOINT", "PIP_INDEX_URL", "FIND_LINKS"} <= asked
    missing = {name for name in asked if f"`{name}`" not in PAGE and f"`PIP_{name}`" not in PAGE}
    assert missing == {"OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM", "TEXTUAL", "PIP_"}
