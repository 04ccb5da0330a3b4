"""What the panel shows, derived from the engine's snapshots; plain values and no widgets."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import EngineSnapshot

    from .chat import Chat

HISTORY = 600
"""Samples kept for the plots: two minutes at five a second."""


@dataclass(frozen=True, slots=True)
class Share:
    """A conversation's part of the KV cache. blocks: its own, without the shared ones."""

    chat: Chat
    tokens_per_second: float | None
    ttft_ms: float | None
    blocks: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """One snapshot and what follows from it.

    shares: live conversations, those of one conversation together. shared: blocks that several use; fits: how
    many more conversations like the one shown the cache has room for. idle: nothing runs, so rates are of
    before.
    """

    snapshot: EngineSnapshot
    shares: tuple[Share, ...]
    shared: int
    fits: int | None

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return self.snapshot.running == 0 and self.snapshot.waiting == 0

    @property
    def bandwidth_share(self) -> float | None:
        """Achieved bandwidth as a share of the measured peak."""
        achieved, peak = self.snapshot.bandwidth_gbs, self.snapshot.bandwidth_peak_gbs
        return achieved / peak if achieved is not None and peak else None

    @property
    def ceiling(self) -> float | None:
        """Tokens a second of one conversation if memory were read at the measured peak."""
        peak, traffic = self.snapshot.bandwidth_peak_gbs, self.snapshot.bytes_per_token
        return peak * 1e9 / traffic if peak and traffic else None

    @property
    def kept(self) -> float | None:
        """Share of the drafted tokens that were right; None without a draft model."""
        drafted = self.snapshot.draft_tokens
        return self.snapshot.accepted_tokens / drafted if drafted else None

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        from engine import as_dict

        return {
            **as_dict(self.snapshot),
            "bandwidth_share": self.bandwidth_share,
            "ceiling_tokens_per_second": self.ceiling,
            "room_for_conversations": self.fits,
        }


def derive(snapshot: EngineSnapshot, chats: Sequence[Chat], shown: Chat | None) -> EngineStats:
    """The statistics of a snapshot, with its requests as the conversations they belong to."""
    rows = {row.id: row for row in snapshot.conversations}
    shares = []
    for chat in chats:
        live = [rows[reply.stream.id] for reply in chat.live.values() if reply.stream.id in rows]
        if live:
            speeds = [row.tokens_per_second for row in live if row.tokens_per_second is not None]
            shares.append(
                Share(
                    chat,
                    sum(speeds) if speeds else None,
                    live[-1].ttft_ms,
                    sum(max(0, row.blocks - row.shared_blocks) for row in live),
                )
            )
    own = sum(share.blocks for share in shares)
    return EngineStats(snapshot, tuple(shares), max(0, snapshot.blocks_used - own), _fits(snapshot, shown))


def _fits(snapshot: EngineSnapshot, shown: Chat | None) -> int | None:
    """Free and evictable blocks over the blocks of the conversation shown, or of the live ones on average."""
    if not snapshot.block_size:
        return None
    used = shown.tokens_used if shown is not None else None
    if used is not None:
        blocks = -(-used // snapshot.block_size)
    elif snapshot.conversations:
        blocks = -(-sum(row.blocks for row in snapshot.conversations) // len(snapshot.conversations))
    else:
        return None
    return (snapshot.blocks_free + snapshot.blocks_cached) // max(1, blocks)


@dataclass
class StatsHistory:
    """The last two minutes, for the plots. waits: the longest time between tokens since the sample before."""

    tokens_per_second: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    bandwidth: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    blocks: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    rows: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    _counted: int = 0  # times between tokens that are in `waits`

    def add(self, stats: EngineStats) -> None:
        """Note a sample."""
        snapshot = stats.snapshot
        active = 0.0 if stats.idle else 1.0
        self.tokens_per_second.append(active * (snapshot.tokens_per_second or 0.0))
        new = min(snapshot.itl_count - self._counted, len(snapshot.itl_recent_ms))
        self._counted = snapshot.itl_count
        self.waits.append(max(snapshot.itl_recent_ms[-new:]) if new > 0 else 0.0)
        self.bandwidth.append(active * (snapshot.bandwidth_gbs or 0.0))
        self.blocks.append(float(snapshot.blocks_used))
        self.rows.append(float(snapshot.running))
