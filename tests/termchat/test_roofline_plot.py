"""The roofline as text: points on the line, nothing beyond the width, plain signs where asked for."""

from __future__ import annotations

import random

from termchat.roofline_plot import NARROWEST, Mark, roofline

MARKS = [Mark("decode", 2.0), Mark("a batch", 30.0), Mark("prefill", 4000.0)]


def test_points_are_on_the_line_and_in_order() -> None:
    rows = roofline(3.35e12, 989e12, MARKS, 76, 12)
    where = {
        letter: next((y, row.index(letter)) for y, row in enumerate(rows) if letter in row)
        for letter in "ABC"
    }
    assert where["A"][0] > where["B"][0] > where["C"][0], "higher is faster"
    assert where["A"][1] < where["B"][1] < where["C"][1], "the right computes more with a byte"
    assert rows[0].startswith(" 989 T/s │")
    assert set(rows[where["C"][0]].split("│")[1]) == set(" ╱─C")
    assert rows[-3:] == [
        "A decode: 2 a byte, at most 6.7 T/s",
        "B a batch: 30 a byte, at most 100 T/s",
        "C prefill: 4.0k a byte, at most 989 T/s",
    ]


def test_without_a_rate_there_is_no_ridge() -> None:
    rows = roofline(30e9, None, MARKS[:1], 60, 10)
    assert not any("─" in row for row in rows if "└" not in row)
    assert "at most 60 G/s" in rows[-1]


def test_all_is_ascii_where_that_is_asked_for() -> None:
    rows = roofline(30e9, 1e12, MARKS, 60, 10, ascii=True)
    assert all(row.isascii() for row in rows)
    assert any("/" in row for row in rows)


def test_any_machine_and_size_gives_a_plot_or_none() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        print("seed", seed)
        width, height = rng.randrange(1, 200), rng.randrange(1, 40)
        marks = [Mark("x", 10 ** rng.uniform(-3, 6)) for _ in range(rng.randrange(4))]
        bandwidth, rate = 10 ** rng.uniform(3, 14), rng.choice([None, 10 ** rng.uniform(3, 18)])
        rows = roofline(bandwidth, rate, marks, width, height)
        if width < NARROWEST or height < 5 or not marks:
            assert rows == []
            continue
        assert len(rows) == height + len(marks)
        plot = rows[:height]
        assert all(len(row) <= width for row in plot)
        drawn = "".join(row[10:] for row in plot[: height - 2])
        assert all(drawn.count(chr(65 + n)) == 1 for n in range(len(marks)))
