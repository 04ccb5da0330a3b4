"""Colour themes: what the shipped ones promise, and that a broken file is one sentence."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import Static

from termchat.render.strips import text_styles
from termchat.themes import MAX_FILE_BYTES, ThemeError, load_theme, load_themes, variable_defaults

FOLDER = Path(__file__).parents[2] / "themes"
THEMES, PROBLEMS = load_themes([FOLDER])
RGB = sorted(name for name, theme in THEMES.items() if not theme.ansi)

GOOD = """\
name = "mine"
dark = true
[colors]
primary = "#4477aa"
foreground = "#eeeeee"
background = "#111111"
"""


def luminance(color: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [value / 255 for value in Color.parse(color).rgb]
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_shipped_themes() -> None:
    assert PROBLEMS == []
    assert len(THEMES) >= 6
    assert any(not theme.dark for theme in THEMES.values())
    assert any(theme.ansi for theme in THEMES.values())
    assert {file.stem for file in FOLDER.glob("*.toml")} == set(THEMES)


@pytest.mark.parametrize("name", RGB)
def test_text_can_be_read(name: str) -> None:
    theme = THEMES[name]
    least = 7.0 if name == "contrast" else 4.5
    grounds = {"background": theme.background, "surface": theme.surface, "panel": theme.panel}
    inks = {
        key: getattr(theme, key)
        for key in ("foreground", "primary", "secondary", "accent", "success", "warning", "error")
    }
    for (key, ink), (where, ground) in itertools.product(inks.items(), grounds.items()):
        assert ink is not None
        assert ground is not None
        assert contrast(ink, ground) >= least, f"{key} on {where}"
    for key, ink in theme.variables.items():
        if key.startswith("syntax-") and key != "syntax-background":
            assert contrast(ink, theme.variables["syntax-background"]) >= least, key
        if key.startswith("chat-"):
            assert theme.background is not None
            assert theme.surface is not None
            assert contrast(ink, theme.background) >= least, key
            assert contrast(ink, theme.surface) >= least, key


@pytest.mark.parametrize("name", RGB)
def test_parts_of_the_block_map_are_seen(name: str) -> None:
    theme = THEMES[name]
    assert theme.panel is not None
    for index in range(8):
        assert contrast(theme.variables[f"panel-kv-{index}"], theme.panel) >= 2.5, index


# Machado, Oliveira, Fernandes 2009, severity 1.0; applied to linear RGB.
VISION = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def seen(color: str, vision: str) -> tuple[float, float, float]:
    """The colour in CIE L*a*b* (D65) as it is seen."""
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (part / 255 for part in Color.parse(color).rgb)
    ]
    if vision in VISION:
        linear = [
            min(1.0, max(0.0, sum(factor * value for factor, value in zip(row, linear, strict=True))))
            for row in VISION[vision]
        ]
    red, green, blue = linear
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883

    def f(value: float) -> float:
        return value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116

    return 116 * f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))


def difference(one: str, other: str, vision: str) -> float:
    """Delta E (CIE 1976); about 2 is the least one notices."""
    return sum((a - b) ** 2 for a, b in zip(seen(one, vision), seen(other, vision), strict=True)) ** 0.5


@pytest.mark.parametrize("vision", ["all colours", *VISION])
def test_the_colour_blind_safe_theme_keeps_colours_apart(vision: str) -> None:
    theme = THEMES["okabe"]
    palette = [theme.variables[f"panel-kv-{index}"] for index in range(8)]
    for one, other in itertools.combinations(palette, 2):
        assert difference(one, other, vision) >= 10, f"{one} and {other}"
    states = [theme.success, theme.warning, theme.error]
    for one, other in itertools.combinations([color for color in states if color], 2):
        assert difference(one, other, vision) >= 20, f"{one} and {other}"
    low, high = theme.variables["panel-spark-low"], theme.variables["panel-spark-high"]
    assert difference(low, high, vision) >= 20


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_small_file_is_enough(tmp_path: Path) -> None:
    theme = load_theme(write(tmp_path, GOOD))
    assert theme.name == "mine"
    assert set(theme.variables) == set(variable_defaults(theme))
    text_styles(theme.to_color_system().generate() | theme.variables)


def test_every_key_is_taken_over(tmp_path: Path) -> None:
    text = GOOD + (
        'secondary = "#010203"\n[syntax]\nkeyword = "#aabbcc"\nbackground = "#222222"\n'
        '[chat]\nuser = "#ddeeff"\n'
        '[panel]\nspark-low = "#123456"\nkv-shared = "#654321"\n'
        'kv = ["#000001", "#000002", "#000003", "#000004", "#000005", "#000006", "#000007", "#000008"]\n'
    )
    theme = load_theme(write(tmp_path, text))
    assert theme.secondary == "#010203"
    assert theme.variables["syntax-keyword"] == "#aabbcc"
    assert theme.variables["syntax-background"] == "#222222"
    assert theme.variables["chat-user"] == "#ddeeff"
    assert theme.variables["panel-spark-low"] == "#123456"
    assert theme.variables["panel-kv-shared"] == "#654321"
    assert [theme.variables[f"panel-kv-{index}"] for index in range(8)] == [f"#00000{i}" for i in range(1, 9)]


BROKEN = {
    "name =": "is not TOML",
    GOOD.replace("mine", "My Theme"): "name must be",
    GOOD.replace("true", '"yes"'): "dark must be true or false",
    GOOD.replace("#4477aa", "#zzz"): "colors.primary: '#zzz' is not a colour",
    GOOD.replace("#4477aa", "blurple"): "colors.primary: 'blurple' is not a colour",
    GOOD.replace("#4477aa", "auto"): "colors.primary",
    GOOD.replace('"#4477aa"', "42"): "colors.primary must be a colour such as '#4477aa', not a int",
    GOOD.replace("#4477aa", "#4477aa80"): "colors.primary: '#4477aa80' is not a solid colour",
    GOOD.replace("#4477aa", "ansi_blue"): "colors.primary: 'ansi_blue' is not an RGB colour",
    GOOD.replace("foreground", "forground"): "'forground' is not a key of [colors]; did you mean foreground?",
    GOOD.replace("primary", "# primary"): "colors.primary is missing",
    GOOD.replace("[colors]", "[colours]"): "'colours' is not a key of the file; did you mean colors?",
    "colors = 3\n" + GOOD.partition("[")[0]: "colors must be a table, not a int",
    GOOD + '[panel]\nkv = ["#111111"]\n': "panel.kv must be a list of 8 colours",
    GOOD + "[panel]\nkv = [1,2,3,4,5,6,7,8]\n": "panel.kv[0] must be a colour",
    GOOD + "[[syntax]]\nkeyword = '#fff'\n": "syntax must be a table, not a list",
    GOOD.replace("dark", "ansi = true\ndark"): "is not of the 16 of the terminal; write 'ansi_bright_blue'",
    "x = " + "[" * 2000: "is not TOML",
    "#" * (MAX_FILE_BYTES + 1): "too many for a theme",
}


@pytest.mark.parametrize("text", BROKEN, ids=list(BROKEN.values()))
def test_a_broken_file_is_one_sentence_with_file_and_key(text: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ThemeError) as caught:
        load_theme(file)
    message = str(caught.value)
    assert str(file) in message
    assert BROKEN[text] in message
    assert "\n" not in message
    assert load_themes([tmp_path]) == ({}, [message])


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'name = "\xff"')
    (tmp_path / "b.toml").mkdir()
    themes, problems = load_themes([tmp_path, tmp_path / "absent"])
    assert themes == {}
    assert [problem.partition(str(tmp_path))[2][1:7] for problem in problems] == ["a.toml", "b.toml"]


def test_the_users_theme_takes_the_place_of_ours(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("mine", "dusk"))
    write(tmp_path, "nonsense", "broken.toml")
    themes, problems = load_themes([FOLDER, tmp_path])
    assert themes["dusk"].primary == "#4477aa"
    assert set(themes) == set(THEMES)
    assert len(problems) == 1


def mutations() -> list[Callable[[random.Random, str], str]]:
    pieces = [
        "[",
        "]",
        '"',
        "=",
        "\n",
        "#",
        "true",
        "[colors]",
        "1",
        "{}",
        "\x00",
        "ansi_red",
        "é",
        "[[x]]",
        "''",
        "_",
    ]

    def drop(rng: random.Random, text: str) -> str:
        start = rng.randrange(len(text))
        return text[:start] + text[start + rng.randint(1, 20) :]

    def insert(rng: random.Random, text: str) -> str:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(pieces) + text[at:]

    def swap(rng: random.Random, text: str) -> str:
        lines = text.split("\n")
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
        return "\n".join(lines)

    def value(rng: random.Random, text: str) -> str:
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        values = [
            "1",
            "true",
            "[]",
            "{}",
            '"auto"',
            '"#12345"',
            "1979-05-27",
            "1e400",
            '"rgb(999,0,0)"',
            '"transparent"',
        ]
        lines[at] = lines[at].partition("=")[0] + "= " + rng.choice(values)
        return "\n".join(lines)

    return [drop, insert, swap, value]


@pytest.mark.slow
def test_mutated_files_give_problems_not_exceptions(tmp_path: Path) -> None:
    originals = [file.read_text() for file in sorted(FOLDER.glob("*.toml"))]
    refused = 0
    for seed in range(400):
        rng = random.Random(seed)
        text = rng.choice(originals)
        for _ in range(rng.randint(1, 4)):
            text = rng.choice(mutations())(rng, text) or "x"
        file = tmp_path / "mutated.toml"
        file.write_text(text)
        themes, problems = load_themes([tmp_path])
        assert len(themes) + len(problems) == 1, f"seed {seed}"
        for theme in themes.values():  # what is accepted can be used
            text_styles(theme.to_color_system().generate() | theme.variables)
        for problem in problems:
            refused += 1
            assert "\n" not in problem
            assert str(file) in problem
    assert refused > 200


@pytest.mark.parametrize("theme", [*BUILTIN_THEMES.values(), *THEMES.values()], ids=lambda theme: theme.name)
def test_every_variable_has_a_value_in_every_theme(theme: Theme) -> None:
    variables = variable_defaults(theme)
    assert set(variables) == set(variable_defaults(THEMES["dusk"]))
    for value in variables.values():
        Color.parse(value)


class ThemedApp(App[None]):
    CSS = """
    Static { background: $syntax-background; color: $chat-user; border: solid $panel-kv-7; }
    """

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield Static("text", markup=False)


@pytest.mark.slow
async def test_an_app_takes_them_all() -> None:
    app = ThemedApp()
    async with app.run_test() as pilot:
        for theme in THEMES.values():
            app.register_theme(theme)
        for name in [*THEMES, "nord", "textual-light", "dusk"]:
            app.theme = name
            await pilot.pause()
            ink = app.query_one(Static).styles.color
            assert ink == Color.parse(app.theme_variables["chat-user"])


def test_no_text_of_the_16_colours_is_dark_blue_or_black() -> None:
    """Neither can be read on black in the palettes of PuTTY, xterm and the Linux console."""
    text = (FOLDER / "terminal.toml").read_text(encoding="utf-8")
    assert not re.findall(r'"ansi_(?:blue|black)"', text)
