"""What the panel shows, derived from the engine's snapshots; plain values and no widgets."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import EngineSnapshot

    from ..conversations.conversation import Conversation

SAMPLES = 600
"""Samples kept for the plots: two minutes at five a second."""

LEAST_SECONDS = 0.05
"""Between two samples; a token in less is no rate."""


CROWDED = 0.75
"""Threads beyond the processors, on average, from which on other programs slow the engine down."""

MEMORY_BOUND = 0.6
"""Share of the peak bandwidth from which on the memory is what limits a step."""

COMPUTE_ROWS = 4
"""Conversations sharing a pass over the weights from which on, below that share, arithmetic is the limit."""


@dataclass(frozen=True, slots=True)
class Share:
    """A conversation's part of the KV cache. blocks: its own, without the shared ones."""

    conversation: Conversation
    tokens_per_second: float | None
    ttft_ms: float | None
    blocks: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """One snapshot and what follows from it.

    shares: live conversations, those of one conversation together. shared: blocks that several use; fits: how
    many more conversations like the one shown the cache has room for. elsewhere: tokens a second of other
    models' conversations, None if none runs. idle: nothing runs, so rates are of before.
    """

    snapshot: EngineSnapshot
    shares: tuple[Share, ...]
    shared: int
    fits: int | None
    elsewhere: float | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return self.snapshot.running == 0 and self.snapshot.waiting == 0

    @property
    def bandwidth_share(self) -> float | None:
        """Achieved bandwidth as a share of the measured peak, at most 1."""
        achieved, peak = self.snapshot.bandwidth_gbs, self.snapshot.bandwidth_peak_gbs
        return min(1.0, achieved / peak) if achieved is not None and peak else None

    @property
    def total(self) -> float | None:
        """Tokens a second of all models' conversations."""
        rates = [] if self.idle and self.elsewhere is not None else [self.snapshot.tokens_per_second]
        known = [rate for rate in (*rates, self.elsewhere) if rate is not None]
        return sum(known) if known else None

    @property
    def limit(self) -> str:
        """What keeps the tokens from coming faster, in a few words; "" where the figures do not say."""
        snapshot, share = self.snapshot, self.bandwidth_share
        if self.idle:
            return ""
        if snapshot.crowding >= CROWDED:
            return "other programs"
        if any(row.state == "prefill" for row in snapshot.conversations):
            return "reading a prompt"
        if share is not None and share >= MEMORY_BOUND:
            return "memory"
        return "arithmetic" if share is not None and snapshot.last_step_rows >= COMPUTE_ROWS else ""

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
            "limited_by": self.limit or None,
            "all_tokens_per_second": self.total,
            "ceiling_tokens_per_second": self.ceiling,
            "room_for_conversations": self.fits,
        }


def derive(
    snapshot: EngineSnapshot, conversations: Sequence[Conversation], shown: Conversation | None
) -> EngineStats:
    """The statistics of a snapshot, with its requests as the conversations they belong to."""
    rows = {row.id: row for row in snapshot.conversations}
    shares = []
    for conversation in conversations:
        live = [rows[reply.stream.id] for reply in conversation.live.values() if reply.stream.id in rows]
        if live:
            speeds = [row.tokens_per_second for row in live if row.tokens_per_second is not None]
            shares.append(
                Share(
                    conversation,
                    sum(speeds) if speeds else None,
                    live[-1].ttft_ms,
                    sum(max(0, row.blocks - row.shared_blocks) for row in live),
                )
            )
    own = sum(share.blocks for share in shares)
    return EngineStats(snapshot, tuple(shares), max(0, snapshot.blocks_used - own), _fits(snapshot, shown))


def _fits(snapshot: EngineSnapshot, shown: Conversation | None) -> int | None:
    """Free and evictable blocks over the blocks of the conversation shown, or of the live ones on average."""
    if not snapshot.block_size:
        return None
    rows = snapshot.conversations
    live = {reply.stream.id for reply in shown.live.values()} if shown is not None else set()
    own = [-(-row.tokens // snapshot.block_size) for row in rows if row.id in live]
    used = shown.tokens_used if shown is not None else None
    if own:  # it grows while it is answered
        blocks = max(own)
    elif used is not None:
        blocks = -(-used // snapshot.block_size)
    elif rows:
        blocks = -(-sum(row.blocks for row in rows) // len(rows))
    else:
        return None
    return (snapshot.blocks_free + snapshot.blocks_cached) // max(1, blocks)


def _samples() -> deque[float]:
    return deque(maxlen=SAMPLES)


@dataclass
class Timeline:
    """Two minutes in which something ran, for the plots; while nothing does, they stand still.

    tokens_per_second, bandwidth: since the sample before, so that a reply shorter than that is seen. waits:
    the longest time between tokens since then. count: samples there ever were.
    """

    tokens_per_second: deque[float] = field(default_factory=_samples)
    waits: deque[float] = field(default_factory=_samples)
    bandwidth: deque[float] = field(default_factory=_samples)
    blocks: deque[float] = field(default_factory=_samples)
    rows: deque[float] = field(default_factory=_samples)
    count: int = 0
    _before: EngineSnapshot | None = None
    _read: float = 0.0  # when the snapshot before was read
    _rests: bool = False  # the sample before says that nothing runs

    def add(self, stats: EngineStats, now: float) -> None:
        """Note a sample. now: in seconds of the snapshot's clock."""
        snapshot, before = stats.snapshot, self._before or stats.snapshot
        tokens = snapshot.tokens_total - before.tokens_total
        # The engine publishes rarely while it is idle: then the time since the last reading counts.
        elapsed = max(LEAST_SECONDS, min(now - self._read, snapshot.time - before.time))
        self._before, self._read = snapshot, now
        rests = stats.idle and tokens <= 0
        if rests and self._rests:
            return
        self._rests = rests
        self.count += 1
        moved, seconds = (
            snapshot.decode_bytes - before.decode_bytes,
            snapshot.decode_seconds - before.decode_seconds,
        )
        new = max(0, min(snapshot.itl_count - before.itl_count, len(snapshot.itl_recent_ms)))
        self.tokens_per_second.append(max(0, tokens) / elapsed)
        self.waits.append(max(snapshot.itl_recent_ms[-new:]) if new > 0 else 0.0)
        self.bandwidth.append(moved / seconds / 1e9 if seconds > 0 else 0.0)
        self.blocks.append(float(snapshot.blocks_used))
        self.rows.append(float(max(snapshot.running, tokens > 0)))
