"""What is known of a terminal by its name alone."""

from __future__ import annotations

import pytest

from termchat.terminals import has_all_colours, is_bare, may_be_screen


@pytest.mark.parametrize(
    ("names", "bare", "colours"),
    [
        ("vt100 vt100-nav vt220 vt420+pcfkeys linux linux-16color ansi cons25w sun", True, False),
        ("xterm xterm-256color screen tmux-256color rxvt-unicode cygwin dumb nonsense", False, False),
        ("xterm-kitty xterm-ghostty alacritty foot foot-extra wezterm contour rio", False, True),
        ("xterm-direct xterm-direct16 iterm2-direct eat-truecolor", False, True),
        ("", False, False),
    ],
)
def test_names_of_terminals(names: str, bare: bool, colours: bool) -> None:
    for name in names.split() or [""]:
        assert (is_bare({"TERM": name}), has_all_colours({"TERM": name})) == (bare, colours), name


@pytest.mark.parametrize(
    ("environ", "maybe"),
    [
        ({}, False),
        ({"TERM": "xterm"}, False),
        ({"TMUX": "/tmp/x,1,0", "TERM": "screen-256color"}, False),
        ({"STY": "1.pts", "TERM": "xterm"}, True),
        ({"TERM": "screen.xterm-256color"}, True),
    ],
)
def test_screen_may_stand_between(environ: dict[str, str], maybe: bool) -> None:
    assert may_be_screen(environ) is maybe
