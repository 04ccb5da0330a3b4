"""docs/configuration.md names every setting there is, and its examples are read without a warning."""

import re
from pathlib import Path

from termchat import themes
from termchat.config import Config
from termchat.registry_file import ModelEntry, read_registries
from termchat.settings import OPTIONS, SAMPLING_KEYS, engine_keys

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def rows(heading: str) -> list[str]:
    """The keys of the table below a heading."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)`", part, re.MULTILINE)


def test_each_setting_stands_there_once() -> None:
    assert rows("[sampling]") == list(SAMPLING_KEYS)
    assert sorted(rows("[engine]")) == sorted(engine_keys())
    for key in OPTIONS:
        assert re.search(rf"^{key.rpartition('.')[2]} = ", EXAMPLES[0], re.MULTILINE), key
    for table, keys in themes._TABLES.items():
        assert f"| `[{table}]` | {', '.join(f'`{key}`' for key in keys)} |" in PAGE


def test_the_example_of_settings_is_one(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(EXAMPLES[0])
    config = Config.load(file)
    assert config.warnings == ()
    assert config.keys == {"chat.delete": "ctrl+x"}


def test_the_example_of_models_is_one(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(EXAMPLES[1].replace('"..."', f'"{"0" * 64}"'))
    found = read_registries(ROOT / "models.toml", file)
    assert found.warnings == ()
    assert found.default == "mine"
    entry = found.entries["mine"]
    assert len(entry.sources) == 3
    for name in ModelEntry.__dataclass_fields__:
        if name not in ("name", "sources"):
            assert re.search(rf"^{name} = ", EXAMPLES[1], re.MULTILINE), name
