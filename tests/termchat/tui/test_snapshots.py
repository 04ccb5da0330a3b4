"""How it looks: pictures of the screen with fixed conversations and a frozen engine.

After a wanted change: `pytest tests/termchat/tui/test_snapshots.py --snapshot-update`, and look at them.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import ConversationRow, EngineSnapshot
from termchat.config import Config
from termchat.model_entry import HuggingFaceSource, ModelEntry
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.resolved_model import ResolvedModel
from termchat.store import Store
from termchat.tui.app import TermchatApp
from termchat.tui.conversations.live_reply import LiveReply
from termchat.tui.engines.stats import Timeline
from termchat.tui.start import Options
from waiting import until

METRICS = {
    "prompt_tokens": 310,
    "cached_tokens": 224,
    "completion_tokens": 118,
    "tokens_per_second": 71.4,
    "ttft_ms": 84.0,
}
REPLY = """\
A **parser** turns text into a tree. Two ways:

1. by hand, one function a rule
2. from a grammar

| way | speed | effort |
|---|---:|---|
| by hand | 9 | more |
| grammar | 6 | less |

```python
def parse(text: str) -> Tree:
    return Parser(text).rule("start")  # 日本語
```

> Either way, keep [brackets] as they are.
"""
ENTRIES = {
    name: ModelEntry(name, (HuggingFaceSource("a/b", "m.gguf"),), text, "Apache-2.0", size)
    for name, text, size in (
        ("small-135m", "very small, answers at once", 98_362_432),
        ("middle-1.5b", "many languages", 1_117_320_736),
    )
}
SNAPSHOT = EngineSnapshot(
    state="ready",
    backend="native",
    exact=True,
    model="small-135m",
    blocks_total=512,
    blocks_free=380,
    blocks_cached=40,
    blocks_used=92,
    block_size=32,
    kv_utilisation=0.97,
    steps=60,
    tokens_total=4120,
    prefix_tokens_saved=1930,
    ttft_ms=84.0,
    ttft_p50_ms=91.0,
    queue_ms=2.1,
    prefill_ms=80.2,
    itl_ms=14.0,
    itl_p95_ms=16.2,
    itl_recent_ms=tuple(14.0 + (index * 7 % 5) + (30 if index == 40 else 0) for index in range(60)),
    itl_count=60,
    tokens_per_second=128.4,
    bandwidth_gbs=21.3,
    bandwidth_peak_gbs=27.9,
    bytes_per_token=96_600_000,
    memory_bytes=168_000_000,
)
LIVE = tuple(ConversationRow(id, "decode", 300 * id, 64.2, 84.0, 20 * id, 6) for id in (1, 2))


@pytest.fixture
def frozen(tmp_path: Path) -> Callable[..., TermchatApp]:
    def make(theme: str = "dusk", state: str = "ready") -> TermchatApp:
        paths = Paths(*(tmp_path / name for name in ("config", "data", "cache", "state")))
        paths.config.mkdir()
        paths.config_file.write_text(f'[ui]\ntheme = "{theme}"\nreduced_motion = true\n')
        if state == "ready":
            with Store(paths.database) as store:
                for title, reply in (("Trip to the sea", "Pack light."), ("[b]Parsers[/b]?", REPLY)):
                    chat = store.create_conversation(model="small-135m")
                    store.add_message(chat.id, "user", title, model="small-135m")
                    store.begin_reply(chat.id, model="small-135m").finish("done", "stop", METRICS)
                    answer = store.begin_reply(chat.id, store.path(chat.id)[0].id, model="small-135m")
                    answer.append(reply, "First the easy part.")
                    answer.finish("done", "stop", METRICS)
        registry = Registry(ENTRIES, "small-135m", Path("/models"))
        app = TermchatApp(
            paths, Config.load(paths.config_file), Options(newest=True), read_registry=lambda: registry
        )
        slot = app.engines.default

        async def start(name: str | None = None, download: bool = False, first: str = "") -> None:
            app.loader.registry = registry
            slot.state = state  # type: ignore[assignment]
            if state == "ready":
                slot.model = ResolvedModel("small-135m", Path("/m.gguf"), ENTRIES["small-135m"])
                info = SimpleNamespace(context_length=8192, defaults={})
                slot.engine = SimpleNamespace(info=info, focus=lambda stream: None)  # type: ignore[assignment]
            else:
                slot.entry = ENTRIES["small-135m"]

        app.engines.start = start  # type: ignore[method-assign]
        slot.snapshot = lambda: SNAPSHOT if state == "ready" else None  # type: ignore[method-assign]
        app.monitor.meet = lambda engine: None  # type: ignore[method-assign]
        app.monitor.measure_peak = lambda: None  # type: ignore[method-assign]
        return app

    return make


async def still(pilot: Any) -> None:
    """Wait until nothing is drawn any more; cursors do not blink."""
    before, same = None, 0
    while same < 5:
        for field in pilot.app.screen.query("Input, TextArea"):
            field.cursor_blink = False
        await pilot.pause(0.06)
        now = pilot.app.screen._compositor.render_strips()
        before, same = now, same + 1 if now == before else 0


async def settled(pilot: Any) -> None:
    app = pilot.app
    await until(lambda: app.engines.default.state != "starting")
    app._main.prompt.cursor_blink = False
    app._main.poll()
    await still(pilot)


async def opened(pilot: Any, key: str) -> None:
    """What a key opens, as it stays."""
    screens = len(pilot.app.screen_stack)
    await pilot.press(key)
    await until(lambda: len(pilot.app.screen_stack) > screens)
    await still(pilot)


def press(key: str) -> Callable[[Any], Any]:
    async def run(pilot: Any) -> None:
        await settled(pilot)
        await opened(pilot, key)

    return run


async def streaming(pilot: Any) -> None:
    """Two conversations stream, one of them with a queued message."""
    await settled(pilot)
    app = pilot.app
    app.engines.default.snapshot = lambda: EngineSnapshot(
        **{
            **{name: getattr(SNAPSHOT, name) for name in SNAPSHOT.__dataclass_fields__},
            "running": 2,
            "waiting": 1,
            "last_step_rows": 2,
            "conversations": LIVE,
        }
    )
    for number, chat in enumerate(app.conversations.all, 1):
        await app.conversations.read(chat)
        message = chat.messages[-1]
        stream: Any = SimpleNamespace(id=number, abort=lambda: None)
        writer: Any = SimpleNamespace(tick=lambda: None)
        reply = LiveReply(writer, message, app.engines.default, stream, None)
        reply.phase = "decode"
        chat.live[message.id] = reply
    app.conversations.all[0].queue.append("and [then] the tests")
    app._main.conversation_changed(app.conversations.all[0])
    app._main.poll()
    await still(pilot)


@pytest.mark.parametrize("size", [(160, 50), (120, 36), (80, 24), (60, 20)], ids=lambda size: f"{size[0]}")
def test_a_conversation(snap_compare: Any, frozen: Any, size: tuple[int, int]) -> None:
    assert snap_compare(frozen(), terminal_size=size, run_before=settled)


def test_light_theme_while_two_stream(snap_compare: Any, frozen: Any) -> None:
    assert snap_compare(frozen("paper"), terminal_size=(120, 36), run_before=streaming)


def test_first_run(snap_compare: Any, frozen: Any) -> None:
    assert snap_compare(frozen(state="absent"), terminal_size=(80, 24), run_before=settled)


def test_models(snap_compare: Any, frozen: Any) -> None:
    assert snap_compare(frozen("okabe"), terminal_size=(100, 24), run_before=press("f6"))


def test_settings(snap_compare: Any, frozen: Any) -> None:
    assert snap_compare(frozen("contrast"), terminal_size=(100, 28), run_before=press("f2"))


def test_engine_in_detail(snap_compare: Any, frozen: Any) -> None:
    async def run(pilot: Any) -> None:
        await streaming(pilot)
        timeline = Timeline()  # the plots must not depend on the time it took
        for sample in range(50):
            timeline.tokens_per_second.append(100 + sample % 9)
            timeline.waits.append(0 if sample % 7 == 0 else 44 if sample == 40 else 14 + sample % 5)
            timeline.bandwidth.append(20 + sample % 3)
            timeline.rows.append(1 + sample % 2)
            timeline.blocks.append(40 + sample)
        timeline.add = lambda stats, now: None
        pilot.app.monitor._timelines = {pilot.app.engines.default: timeline}
        await opened(pilot, "f3")

    assert snap_compare(frozen("moss"), terminal_size=(120, 36), run_before=run)
