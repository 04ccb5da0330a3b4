"""The user's settings: config.toml, read key by key, and edited without losing its comments.

What is wrong in the file becomes a warning that names file, key and what is allowed; the default is used
instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .charset import shows_signs
from .errors import UserError, did_you_mean, shown
from .file_locks import locked
from .files import (
    Text,
    TextError,
    lost_link,
    private_folder,
    read_text,
    read_toml,
    rewritten_toml,
    write_private,
)
from .settings import ENGINE, OPTIONS, SAMPLING, Check, accepted, check_engine, check_sampling

Source = Literal["flag", "config", "registry", "model", "default"]

_TABLES = ("ui", "keys", "sampling", "engine")

_KNOWN = (*OPTIONS, *(f"sampling.{name}" for name in SAMPLING), *(f"engine.{name}" for name in ENGINE))
"""All keys but those of [keys], whose names are the actions'."""


class ConfigError(UserError):
    """A setting cannot be read or written."""


class SettingError(ConfigError):
    """There is no such setting, or it cannot have this value."""


class Setting(NamedTuple):
    """One effective setting and where its value comes from."""

    key: str
    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Config:
    """The settings as they hold. options: every key of OPTIONS; `given` names those the user set.

    keys: action id -> key, or several separated by commas; sampling, engine: what the user set of
    SamplingParams and EngineConfig; warnings: one sentence for each part of the file that is ignored.
    """

    file: Path
    options: Mapping[str, str | bool | None]
    given: frozenset[str] = frozenset()
    keys: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, file: Path) -> Config:
        """Read the file. One that is missing, broken or in part wrong leaves defaults and warnings."""
        warnings: list[str] = []
        content: dict[str, Any] = {}
        try:
            content = _parse(file)
        except ConfigError as error:
            warnings.append(f"{error}; defaults are used")
        if lost := lost_link(file):
            warnings.append(f"{file} {lost}; defaults are used")
        reader = _Reader(file, warnings.append)
        top = {key: value for key, value in content.items() if key not in _TABLES}
        tables = {key: reader.table(content, key) for key in _TABLES}
        given = reader.options(top, "") | reader.options(tables["ui"], "ui.")
        return cls(
            file=file,
            options={key: given.get(key, option.default) for key, option in OPTIONS.items()},
            given=frozenset(given),
            keys=reader.keys(tables["keys"]),
            sampling=reader.fields(tables["sampling"], "sampling", SAMPLING, check_sampling),
            engine=reader.fields(tables["engine"], "engine", ENGINE, check_engine),
            warnings=tuple(warnings),
        )

    @property
    def ascii(self) -> bool:
        """Whether to draw with ASCII characters only: as the user wants, else as the terminal needs."""
        return bool(self.options["ui.ascii"]) if "ui.ascii" in self.given else not shows_signs()

    def blamed(self, sentence: str, flags: Collection[str] = ()) -> str:
        """Of a sentence about the engine: which of the user's settings it names, to be added; "" for none.

        flags: options that went over them.
        """
        given = {name: value for name, value in self.engine.items() if name not in flags}
        own = [f"engine.{name}" for name, value in given.items() if _names(sentence, name, value)]
        return self.said_by(own)

    def said_by(self, keys: Sequence[str]) -> str:
        """What to add to a sentence: that these settings are the file's; "" if there are none."""
        return f" ({', '.join(keys)} in {self.file})" if keys else ""

    def show(self) -> list[Setting]:
        """Every setting with its value (None: left to the model and the machine) and source; of [keys] those
        that the user set.
        """
        own = dict[str, Any]({key: self.options[key] for key in self.given})
        for name, table in (("keys", self.keys), ("sampling", self.sampling), ("engine", self.engine)):
            own |= {f"{name}.{key}": value for key, value in table.items()}
        known: dict[str, Any] = {**dict.fromkeys(_KNOWN), **self.options, **own}
        return [Setting(key, value, "config" if key in own else "default") for key, value in known.items()]


def _names(sentence: str, name: str, value: object) -> bool:
    """Whether a sentence is about this setting: one whose name is an ordinary word, such as `device`, stands
    at its beginning or before the value.
    """
    if "_" in name:
        return re.search(rf"\b{name}\b", sentence) is not None
    return re.search(rf"^{name}\b|\b{name} {re.escape(str(value))}(?!\w)", sentence) is not None


def set_value(file: Path, key: str, value: Any) -> None:
    """Set one key (such as `ui.theme`) in the file and keep all else as it is, comments too. None removes it.

    The file is replaced in one step; of two programs that do this at once none undoes the other.
    ConfigError: key or value are not allowed, or the file is broken (it is left alone then). PathError.
    """
    import tomlkit

    private_folder(file.parent)
    try:
        with locked(file.parent / ".config.lock"):
            wanted = _parse(file)
            _check(key, value, wanted)
            before = read_text(file) if os.path.exists(file) else Text("")
            document: Any = tomlkit.parse(before.text)
            for tree, new in ((wanted, dict), (document, tomlkit.table)):
                _put(tree, key, value, new)
            text = rewritten_toml(before, tomlkit.dumps(document), wanted)
            if text is None:
                raise ConfigError(f"{key} cannot be set in {file} without changing more; set it by hand")
            write_private(file, text)
    except (tomlkit.exceptions.TOMLKitError, RecursionError, TextError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        if isinstance(error, TextError):
            reason = f"it {error}"
        raise ConfigError(f"{file} cannot be edited: {reason}; set {key} by hand") from error
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error


def _put(tree: Any, key: str, value: Any, new: Callable[[], Any]) -> None:
    *tables, name = key.split(".", 1)
    for table in tables:
        if table not in tree:
            if value is None:
                return
            tree[table] = new()
        tree = tree[table]
    if value is None:
        tree.pop(name, None)
    else:
        tree[name] = value


def _parse(file: Path) -> dict[str, Any]:
    try:
        return read_toml(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except TextError as error:
        raise ConfigError(f"{file} {error}") from error


def _check(key: str, value: Any, content: Mapping[str, Any]) -> None:
    """SettingError unless the key exists and may have the value (None: be removed)."""
    table, _, name = key.partition(".")
    if key not in _KNOWN and not (table == "keys" and name):
        meant = did_you_mean(key, _KNOWN, like=0.75) or "`termchat config show` lists all"
        raise SettingError(f"there is no setting {key!r}; {meant}")
    if name and not isinstance(content.get(table, {}), dict):
        raise ConfigError(f"{table} must be a table [{table}] before {key} can be set")
    if value is None:
        return
    problem = OPTIONS[key].problem(value) if key in OPTIONS else None
    if table == "keys" and not isinstance(value, str):
        problem = "must be a text"
    if problem is not None:
        raise SettingError(f"{key} {problem}, not {shown(value)}")
    if table in ("sampling", "engine"):
        check: Check = check_sampling if table == "sampling" else check_engine
        _, problems = accepted({**content.get(table, {}), name: value}, check)
        if name in problems:
            raise SettingError(problems[name])


class _Reader:
    """Takes the parsed file apart; what does not hold goes to `warn` with the file's name."""

    def __init__(self, file: Path, warn: Callable[[str], None]) -> None:
        self._file = file
        self._warn = warn

    def table(self, content: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = content.get(key, {})
        if isinstance(value, dict):
            return value
        self._warn(f"{self._file}: {key} must be a table [{key}]; it is ignored")
        return {}

    def options(self, table: Mapping[str, Any], prefix: str) -> dict[str, str | bool | None]:
        known = [key for key in OPTIONS if key.startswith(prefix)]
        found: dict[str, str | bool | None] = {}
        for name, value in table.items():
            key = prefix + name
            if key not in known:
                self._unknown(key, known if prefix else _KNOWN)
                continue
            problem = OPTIONS[key].problem(value)
            if problem is None:
                found[key] = value
            else:
                self._warn(f"{self._file}: {key} {problem}, not {shown(value)}; the default is used")
        return found

    def keys(self, table: Mapping[str, Any]) -> dict[str, str]:
        for name, value in table.items():
            if not isinstance(value, str):
                self._warn(f"{self._file}: keys.{name} must be a text, not {shown(value)}; it is ignored")
        return {name: value for name, value in table.items() if isinstance(value, str)}

    def fields(
        self, table: Mapping[str, Any], name: str, known: Mapping[str, str], check: Check
    ) -> dict[str, Any]:
        for key in table.keys() - known.keys():
            self._unknown(f"{name}.{key}", [f"{name}.{other}" for other in known])
        good, problems = accepted({key: value for key, value in table.items() if key in known}, check)
        for problem in problems.values():
            self._warn(f"{self._file}: {name}: {problem}; the default is used")
        return good

    def _unknown(self, key: str, known: Sequence[str]) -> None:
        meant = did_you_mean(key, [*known, *_TABLES], like=0.55) or "`termchat config show` lists all"
        self._warn(f"{self._file}: unknown setting {shown(key)} is ignored; {meant}")
