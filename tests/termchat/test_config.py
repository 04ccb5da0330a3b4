from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from engine import EngineConfig, SamplingParams
from termchat.config import Config, ConfigError, Setting, set_value
from termchat.sampling import resolve_sampling
from termchat.settings import ENGINE, OPTIONS, SAMPLING

EXAMPLE = """\
# my settings
model = "tiny"   # small

[ui]
ascii = true

[keys]
quit = "ctrl+x"

[sampling]
temperature = 0.3  # calm
stop = ["END"]

[engine]
threads = 2
max_batch_tokens = 2048
max_sequences = 1000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "config.toml"


def load(file: Path, text: str) -> Config:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return Config.load(file)


def test_without_a_file_everything_has_its_default(file: Path) -> None:
    config = Config.load(file)
    assert config.warnings == ()
    assert config.options == {key: option.default for key, option in OPTIONS.items()}
    assert {setting.source for setting in config.show()} == {"default"}
    shown = {setting.key for setting in config.show()}
    assert {"ui.theme", "sampling.temperature", "engine.device"} <= shown, "all that can be set"
    assert not file.parent.exists()


def test_what_the_user_set_is_taken_and_shown_with_its_source(file: Path) -> None:
    config = load(file, EXAMPLE)
    assert config.warnings == ()
    assert config.options["model"] == "tiny"
    assert config.options["ui.ascii"] is True
    assert config.keys == {"quit": "ctrl+x"}
    assert config.sampling == {"temperature": 0.3, "stop": ["END"]}
    # 1000 sequences are allowed only with the 2048 tokens
    assert config.engine == {"threads": 2, "max_batch_tokens": 2048, "max_sequences": 1000}
    shown = {setting.key: setting for setting in config.show()}
    assert shown["model"] == Setting("model", "tiny", "config")
    assert shown["ui.panel"] == Setting("ui.panel", "full", "default")
    assert shown["sampling.temperature"] == Setting("sampling.temperature", 0.3, "config")
    assert shown["engine.threads"].value == 2
    assert shown["keys.quit"].value == "ctrl+x"


@pytest.mark.parametrize(
    ("sentence", "blamed"),
    [
        ("device cuda:7 is not there; this machine has no GPU", ["device"]),
        ("there is no device cuda:7", ["device"]),
        ("the device has no memory left", []),
        ("model.gguf: the chat template fails", []),
        ("the chat template x.jinja: line 3", ["template"]),
        ("the KV cache of 10 bytes (kv_memory) holds no block", ["kv_memory"]),
        ("there is no device cuda:71", []),
    ],
)
def test_an_error_is_blamed_only_on_a_setting_that_it_is_about(tmp_path: Path, sentence, blamed) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[engine]\ndevice = "cuda:7"\ntemplate = "x.jinja"\nkv_memory = 10\n')
    config = Config.load(file)
    assert config.blamed(sentence) == config.said_by([f"engine.{name}" for name in blamed])
    assert not config.blamed(sentence, {"device", "template", "kv_memory"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modle = 'x'", "unknown setting 'modle' is ignored; did you mean 'model'"),
        ("[uu]\na = 1", "unknown setting 'uu' is ignored; `termchat config show` lists all"),
        ("temprature = 1", "unknown setting 'temprature' is ignored; did you mean 'sampling.temperature'"),
        ("thread = 2", "unknown setting 'thread' is ignored; did you mean 'engine.threads'"),
        ("[ui]\nasci = true", "unknown setting 'ui.asci' is ignored; did you mean 'ui.ascii'"),
        ("[ui]\nascii = 1", "ui.ascii must be true or false, not 1; the default is used"),
        ("[ui]\npanel = 'big'", "ui.panel must be one of full, mini, off, not 'big'"),
        ("[ui]\npanel = ['full']", "ui.panel must be one of"),
        ("model = 3", "model must be a text, not 3"),
        ("ui = 3", r"ui must be a table \[ui\]"),
        ("[keys]\nquit = 3", "keys.quit must be a text, not 3"),
        ("[sampling]\ntemprature = 1", "unknown setting 'sampling.temprature' is ignored; did you mean"),
        ("[sampling]\ntemperature = -1", r"temperature must be in \[0, inf\), not -1; the default is used"),
        ("[sampling]\ntemperature = 'hot'", "temperature must be a number, not 'hot'"),
        ("[sampling]\nseed = 1979-05-27", "seed must be an integer"),
        ("[sampling]\nstop = 3", "stop must be a list, not 3"),
        ("[sampling]\nlogprobs = 3", "unknown setting 'sampling.logprobs'"),
        ("[engine]\nthread = 2", "unknown setting 'engine.thread' is ignored; did you mean 'engine.threads'"),
        ("[engine]\nthreads = 0", r"threads must be an integer in \[1, 1024\]"),
        ("[engine]\nmodel = 'x'", "unknown setting 'engine.model'"),
        ("model = \n[ui]", "is not valid TOML: .*line 1.*; defaults are used"),
    ],
)
def test_what_is_wrong_is_one_warning_and_the_default_holds(file: Path, text: str, said: str) -> None:
    config = load(file, text)
    (warning,) = config.warnings
    assert warning.startswith(f"{file}")
    assert "\n" not in warning
    assert re.search(said, warning), warning
    assert config.options["model"] is None
    assert config.options["ui.panel"] == "full"
    assert config.sampling == config.engine == config.keys == {}


def test_a_wrong_value_takes_no_other_with_it(file: Path) -> None:
    config = load(file, EXAMPLE.replace("threads = 2", "threads = -2").replace("0.3", "-0.3"))
    assert len(config.warnings) == 2
    assert config.sampling == {"stop": ["END"]}
    assert config.engine == {"max_batch_tokens": 2048, "max_sequences": 1000}


@pytest.mark.parametrize("data", [b"\xff", b"\x00", b'model = "\xff"'])
def test_a_file_that_is_no_text_is_a_warning(file: Path, data: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(data)
    assert len(Config.load(file).warnings) == 1
    file.unlink()
    file.mkdir()
    assert len(Config.load(file).warnings) == 1


def test_the_engines_settings_are_not_imported_for_nothing(file: Path) -> None:
    load(file, "model = 'x'\n[ui]\nascii = true\n")
    code = "import sys, pathlib; from termchat.config import Config; Config.load(pathlib.Path(sys.argv[1]))\n"
    code += "print([name for name in ('engine', 'tomlkit', 'numpy') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code, str(file)]) == b"[]\n"


def test_every_field_named_here_is_one_of_the_engine() -> None:
    assert set(SAMPLING) < set(SamplingParams.__dataclass_fields__)
    found_here = {
        "model",
        "paired_draft",
        "findings",
    }  # the application has them from its registry and folders
    assert {*ENGINE, *found_here} == set(EngineConfig.__dataclass_fields__)


def test_a_flag_goes_over_the_config_over_the_registry_over_the_model() -> None:
    def values(**layers: dict[str, object]) -> dict[str, tuple[object, str]]:
        flags, config = layers.pop("flags", {}), layers.pop("config", {})
        found = resolve_sampling(flags, config, **layers)
        return {key: (setting.value, setting.source) for key, setting in found.items()}

    registry, model = {"temperature": 0.2, "top_k": 9}, {"temperature": 0.6, "min_p": 0.1}
    assert values() == {"temperature": (0.7, "default"), "top_p": (0.95, "default")}
    assert values(model=model) == {"temperature": (0.6, "model"), "min_p": (0.1, "model")}
    assert values(registry=registry, model=model) == {
        "temperature": (0.2, "registry"),
        "top_k": (9, "registry"),
    }
    assert values(registry=registry, config={"top_k": 0}, flags={"temperature": 0, "seed": None}) == {
        "temperature": (0, "flag"),
        "top_k": (0, "config"),
    }


def test_greedy_is_the_models_own_first_choice_unless_the_user_says_more() -> None:
    registry = {"temperature": 0.2, "repetition_penalty": 1.1}
    chosen = resolve_sampling({"temperature": 0.5}, {}, registry)
    assert chosen["repetition_penalty"].value == 1.1
    for flags, config in (
        ({"temperature": 0}, {}),
        ({}, {"temperature": 0.0}),
        ({"temperature": 0.0}, {"temperature": 1}),
    ):
        assert set(resolve_sampling(flags, config, registry)) == {"temperature"}
    kept = resolve_sampling({"temperature": 0}, {"repetition_penalty": 1.3}, registry)
    assert kept["repetition_penalty"].value == 1.3


def test_a_key_is_set_and_all_else_stays(file: Path) -> None:
    load(file, EXAMPLE)
    file.chmod(0o644)
    set_value(file, "sampling.temperature", 0.9)
    set_value(file, "ui.theme", "night")
    set_value(file, "model", "big")
    assert file.read_text() == EXAMPLE.replace("temperature = 0.3", "temperature = 0.9").replace(
        "ascii = true\n", 'ascii = true\ntheme = "night"\n'
    ).replace('"tiny"', '"big"')
    assert file.stat().st_mode & 0o777 == 0o600
    set_value(file, "ui.theme", None)
    set_value(file, "model", "tiny")
    set_value(file, "sampling.temperature", 0.3)
    assert file.read_text() == EXAMPLE
    set_value(file, "keys.chat.new", "f2")
    assert Config.load(file).keys == {"quit": "ctrl+x", "chat.new": "f2"}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("", "ui.theme", "x"),
        ("", "model", "y"),
        ("[ui]\n", "model", "y"),
        ("ui.ascii = true\n", "ui.theme", "x"),
        ("ui = { ascii = true }\n", "ui.theme", "x"),
        ("[ui]\nascii = true\n\n[keys]\n[ui.extra]\n", "ui.theme", "x"),
        ("[sampling]\nstop = [\n  'a', # one\n  'b',\n]\n", "sampling.seed", 3),
        ("# only a comment", "engine.threads", 2),
        ("model = 'x'\r\n[ui]\r\nascii = true\r\n", "model", "y"),
        ('"model" = "x"\n', "model", "y\"'\n\\"),
        ("[ui]\nascii = true", "model", None),
        ("", "ui.theme", None),
    ],
)
def test_every_way_to_write_the_file_can_be_edited(file: Path, text: str, key: str, value: object) -> None:
    load(file, text)
    set_value(file, key, value)
    expected = tomllib.loads(text)
    *table, name = key.split(".", 1)
    if value is not None:
        for part in table:
            expected = expected.setdefault(part, {})
        expected[name] = value
    after = tomllib.loads(file.read_text())
    for part in table if value is not None else ():
        after = after[part]
    assert after == expected


def test_a_new_file_is_private_and_its_folder_is_made(file: Path) -> None:
    set_value(file, "ui.theme", "night")
    assert file.read_text() == '[ui]\ntheme = "night"\n'
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("ui.them", "x", "there is no setting 'ui.them'; did you mean 'ui.theme'"),
        ("ui", "x", "there is no setting 'ui'"),
        ("keys", "x", "there is no setting 'keys'"),
        ("keys.quit", 3, "keys.quit must be a text, not 3"),
        ("ui.ascii", "yes", "ui.ascii must be true or false, not 'yes'"),
        ("ui.panel", "big", "ui.panel must be one of full, mini, off, not 'big'"),
        ("sampling.top_p", 3, r"top_p must be in \[0, 1\], not 3"),
        ("engine.threads", 0, "threads must be an integer"),
        ("engine.max_sequences", 1000, r"max_sequences \(1000\) must not exceed max_batch_tokens \(512\)"),
        ("engine.model", "x", "there is no setting 'engine.model'"),
    ],
)
def test_what_is_not_allowed_is_not_written(file: Path, key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        set_value(file, key, value)
    assert not file.exists()


def test_a_broken_file_is_not_touched(file: Path) -> None:
    load(file, "model = ")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        set_value(file, "model", "x")
    load(file, "ui = 3")
    with pytest.raises(ConfigError, match=r"ui must be a table \[ui\] before ui.theme can be set"):
        set_value(file, "ui.theme", "x")
    assert file.read_text() == "ui = 3"


def test_two_programs_that_set_keys_at_once_both_succeed(file: Path) -> None:
    code = "import sys, pathlib; from termchat.config import set_value\n"
    code += "for n in range(20): set_value(pathlib.Path(sys.argv[1]), 'keys.' + sys.argv[2] + str(n), 'x')"
    running = [subprocess.Popen([sys.executable, "-c", code, str(file), who]) for who in "ab"]
    assert [process.wait(300) for process in running] == [0, 0]
    assert len(Config.load(file).keys) == 40
