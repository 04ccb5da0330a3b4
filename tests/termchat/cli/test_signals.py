"""Signals: the first in order, the second at once."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from termchat.__main__ import _log_unraisable
from termchat.cli.signals import HANDLED, Interrupted, Signals


class LeftError(Exception):
    """The process would have ended."""


@pytest.fixture
def signals(monkeypatch):
    def leave(code):
        raise LeftError(code)

    monkeypatch.setattr(os, "_exit", leave)
    signals = Signals()
    signals.install()
    return signals


@pytest.mark.parametrize("number", HANDLED)
def test_the_first_signal_unwinds(signals, number):
    with pytest.raises(Interrupted) as caught:
        signal.raise_signal(number)
    assert caught.value.exit_code == 128 + number
    assert signals.received == number


def test_the_first_signal_calls_what_was_asked_and_the_second_leaves(signals):
    calls = []
    with signals.calling(lambda: calls.append(1)):
        signal.raise_signal(signal.SIGINT)
        assert calls == [1]
        with pytest.raises(LeftError) as caught:
            signal.raise_signal(signal.SIGTERM)
    assert caught.value.args == (130,)


def test_actions_nest(signals):
    calls = []
    with signals.calling(lambda: calls.append("outer")):
        with signals.calling(None), pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        signals.forget()
        signal.raise_signal(signal.SIGINT)
    assert calls == ["outer"]


def test_while_loading_and_at_the_end_a_signal_leaves_at_once(signals):
    with signals.calling(signals.leave_at_once), pytest.raises(LeftError) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.args == (143,)
    signals.forget()
    signals.end()
    with pytest.raises(LeftError) as caught:
        signal.raise_signal(signal.SIGHUP)
    assert caught.value.args == (129,)


def test_a_signal_while_an_object_is_dropped_is_not_lost(signals, monkeypatch):
    """Python ignores what is raised there, such as in each import when its lock is given up."""

    class Dropped:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(sys, "unraisablehook", _log_unraisable)
    Dropped()
    assert codes == [143]


def test_ignored_signals_stay_ignored():
    """As under nohup, or in the background of a shell without job control."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Signals().install()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert callable(signal.getsignal(signal.SIGINT))
