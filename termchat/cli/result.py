"""A finished reply with its figures: the object of `--json`, and the lines of `--stats`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine import Finished, TokenLogprob, as_dict

from ..constraints import parsed
from ..draft_figures import DraftFigures
from ..units import milliseconds, number, percent, rate

USAGE_FIELDS = ("prompt_tokens", "cached_tokens", "completion_tokens", "draft_tokens", "accepted_tokens")
TIMING_FIELDS = (
    "queue_ms",
    "ttft_ms",
    "itl_ms",
    "itl_p95_ms",
    "e2e_ms",
    "tokens_per_second",
    "bandwidth_gbs",
)


class Result(NamedTuple):
    """A finished reply and what is known of it.

    peak: measured bandwidth in GB/s, None if not asked for; quiet: not only while other programs ran.
    backend, device, ranks, exact, replaced, draft, draft_off: see EngineSnapshot. logprobs: of every token of
    the reply; None if not asked for. schema: the reply was to keep to one.
    """

    id: str
    conversation: str | None
    model: str
    text: str
    thinking: str
    finished: Finished
    load_ms: float
    peak: float | None = None
    quiet: bool = True
    exact: bool = True
    backend: str = ""
    draft: str = ""
    draft_off: str = ""
    ranks: str = ""
    replaced: Sequence[str] = ()
    device: str = ""
    logprobs: Sequence[TokenLogprob] | None = None
    schema: bool = False

    @property
    def parsed(self) -> tuple[Any, str | None]:
        """The value of a reply that was to be JSON, or why there is none."""
        return parsed(self.text, self.finished.reason, self.finished.stop_match)

    @property
    def bandwidth_peak(self) -> float | None:
        """The peak in GB/s, never below what the reply achieved."""
        return None if self.peak is None else max(self.peak, self.finished.timings.bandwidth_gbs or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`; undefined is None."""
        usage, timings = as_dict(self.finished.usage), as_dict(self.finished.timings)
        metrics = {"load_ms": self.load_ms, **{name: timings[name] for name in TIMING_FIELDS}}
        metrics["bandwidth_peak_gbs"] = self.bandwidth_peak
        return {
            "id": self.id,
            "conversation": self.conversation,
            "model": self.model,
            "text": self.text,
            "thinking": self.thinking or None,
            **(dict(zip(("parsed", "parse_error"), self.parsed, strict=True)) if self.schema else {}),
            "finish_reason": self.finished.reason,
            "seed": self.finished.seed,
            "usage": {name: usage[name] for name in USAGE_FIELDS},
            "metrics": {name: finite(value) for name, value in metrics.items()},
            **self.drafts.as_dict(),
            **logprobs_entry(self.logprobs),
        }

    def stats(self) -> str:
        """The figures in plain words, in a few lines."""
        usage, times = self.finished.usage, self.finished.timings
        exact = "exact" if self.exact else "not exact: tokens can depend on what else is in the batch"
        replaced = f", but plain torch for {', '.join(self.replaced)}" if self.replaced else ""
        slow = " (not the fastest one: `termchat doctor` says why)" if self.backend == "reference" else ""
        device = "" if not self.device or self.device.startswith("cpu") else f" on {self.device}"
        parallel = f" in parallel ({self.ranks})" if self.ranks else ""
        lines = [
            f"prompt {usage.prompt_tokens} tokens, {usage.cached_tokens} of them cached; "
            f"reply {usage.completion_tokens} tokens ({self.finished.reason})",
            f"first token after {milliseconds(times.ttft_ms)} (queue {milliseconds(times.queue_ms)}, "
            f"prefill {milliseconds(times.prefill_ms)}); "
            f"then {milliseconds(times.itl_ms)} a token (95 % within {milliseconds(times.itl_p95_ms)}), "
            f"{rate(times.tokens_per_second)} tokens/s",
            *filter(None, [str(self.drafts)]),
            f"memory traffic {number(times.bandwidth_gbs)} GB/s, {self._share()}; "
            f"{self.backend} backend{slow}{device}{parallel}, {exact}{replaced}; "
            f"model loaded in {milliseconds(self.load_ms)}; seed {self.finished.seed}",
        ]
        return "".join(f"{line}\n" for line in lines)

    @property
    def drafts(self) -> DraftFigures:
        """What came of drafts."""
        usage = self.finished.usage
        tokens = usage.completion_tokens
        return DraftFigures(self.draft, self.draft_off, tokens, usage.drafts_tried, usage.drafts_kept)

    def _share(self) -> str:
        achieved, peak = self.finished.timings.bandwidth_gbs, self.bandwidth_peak
        if peak is None:
            return "peak not measured"
        share = percent(achieved / peak if achieved is not None else None)
        busy = "" if self.quiet else ", measured while the machine was busy"
        return f"{share} of the measured peak of {number(peak)} GB/s{busy}"


def logprobs_entry(logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
    """Log-probabilities as an entry of an object of `--json`; none if they were not asked for."""
    if logprobs is None:
        return {}
    entries = [
        {**_logprob(each.token_id, each.logprob, each.text), "top": [_logprob(*top) for top in each.top]}
        for each in logprobs
    ]
    return {"logprobs": entries}


def _logprob(token_id: int, logprob: float, text: str) -> dict[str, Any]:
    return {"token": text, "token_id": token_id, "logprob": finite(logprob)}


def finite(value: float | None) -> float | None:
    """The number, or None if it is none that JSON has."""
    return value if value is not None and math.isfinite(value) else None
