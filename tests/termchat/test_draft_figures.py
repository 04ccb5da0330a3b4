"""What is said about drafts."""

from __future__ import annotations

from typing import Any

import pytest

from engine import EngineSnapshot, Finished, Usage
from engine.types import Timings
from termchat.cli.result import Result
from termchat.tui.engines.stats import derive
from termchat.tui.widgets.figures import draft_lines


def result(usage: Usage) -> Result:
    return Result("1", None, "m", "text", "", Finished("stop", "text", (), usage, Timings()), 1.0)


def test_stats_name_a_gpu() -> None:
    usage = Usage(9, 0, 30)
    on_gpu = result(usage)._replace(backend="triton", device="cuda:0 (NVIDIA H200)")
    assert "triton backend on cuda:0 (NVIDIA H200), " in on_gpu.stats()
    assert (
        "native backend, " in result(usage)._replace(backend="native", device="cpu (avx2, 4 threads)").stats()
    )


def test_stats_say_how_many_drafts_were_right_and_what_that_brought() -> None:
    usage = Usage(9, 0, 30, 25, 20, (15, 10), (12, 8))
    said = "25 tokens, 20 of them right (80 %, 80 80 % by place), 3.00 tokens a step\n"
    assert f"drafts: {said}" in result(usage).stats()
    named = result(usage)._replace(draft="small", draft_off="rows cost too much")
    assert f"drafts by small: {said}" in named.stats()
    assert named.as_dict()["drafts"] == {
        "by": "small",
        "off": "rows cost too much",
        "tokens": 30,
        "tokens_a_step": 3.0,
        "tried": [15, 10],
        "kept": [12, 8],
    }
    none = result(Usage(9, 0, 30))._replace(draft="small", draft_off="too few are right")
    assert "drafts by small: none, as too few are right\n" in none.stats()
    assert result(usage).as_dict()["usage"].items() >= {"draft_tokens": 25, "accepted_tokens": 20}.items()
    assert "draft" not in result(Usage(9, 0, 30)).stats()


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, []),
        ({"draft": "ngram", "draft_off": "nothing repeats"}, []),
        (
            {
                "draft": "ngram",
                "draft_tokens": 40,
                "accepted_tokens": 30,
                "tokens_total": 60,
                "drafts_tried": (20, 20),
                "drafts_kept": (18, 12),
            },
            ["75 % kept", "ngram", "2.00", "90 60 %"],
        ),
        (
            {
                "draft": "a model with a very long name indeed",
                "draft_off": "rows cost too much",
                "draft_tokens": 4,
                "accepted_tokens": 1,
                "tokens_total": 11,
                "drafts_tried": (4,),
                "drafts_kept": (1,),
                "draft_memory_bytes": 2_000_000,
            },
            ["25 % kept", "a model with a very long", "1.10", "25 %", "2.0 MB", "rows cost too much"],
        ),
    ],
)
def test_the_panel_says_what_drafts_bring_and_why_they_are_off(
    figures: dict[str, Any], said: list[str]
) -> None:
    snapshot = EngineSnapshot("ready", "native", True, "m", running=1, **figures)
    lines = [line.plain for line in draft_lines(derive(snapshot, [], None), 32)]
    assert len(lines) == len(said)
    for line, part in zip(lines, said, strict=True):
        assert line.endswith(part) or part in line
