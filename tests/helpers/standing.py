"""Engines that stand still while they are asked for things, and all that they show: no luck of the moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine import AsyncEngine, EngineSnapshot
from engine.core import EngineCore
from engine.snapshot import State
from waiting import HANG_SECONDS, until


@asynccontextmanager
async def standing(engine: AsyncEngine, requests: int) -> AsyncIterator[None]:
    """Requests that are made in here, so many, are taken in together, however long each takes to be made.

    Else a machine that is busy may answer the first before it is given the last.
    """
    service, inside, go = engine._core._service, threading.Event(), threading.Event()
    assert service is not None

    def stand() -> None:
        del service.audit  # type: ignore[method-assign]
        inside.set()
        assert go.wait(HANG_SECONDS)

    service.audit = stand  # type: ignore[method-assign]
    called = asyncio.create_task(engine.audit())
    await until(inside.is_set)
    try:
        yield
        await until(lambda: engine._core.commands.qsize() >= requests)
    finally:
        go.set()
        await called


def record_snapshots(monkeypatch: pytest.MonkeyPatch) -> list[EngineSnapshot]:
    """All snapshots from now on, one after each step: whoever looks in now and then may miss some."""
    found: list[EngineSnapshot] = []
    publish = EngineCore._publish

    def recorded(core: EngineCore, state: State) -> None:
        publish(core, state)
        found.append(core.snapshot)

    monkeypatch.setattr("engine.core.PUBLISH_SECONDS", -1.0)
    monkeypatch.setattr(EngineCore, "_publish", recorded)
    return found
