"""What a draw depends on: settings, seed, and the tokens seen before it."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from copy import copy

import numpy as np

from .sampling_params import SamplingParams

FLOAT32_MAX = float(np.finfo(np.float32).max)
_FORBIDDEN = -np.inf
_WORD = 2**64 - 1

Pairs = tuple[Sequence[int], Sequence[float]]
"""Token ids, each once, and a value for each."""


def derive_seed(seed: int, index: int) -> int:
    """Seed of 63 bits of the index-th of several replies to one prompt."""
    from kernels.noise import splitmix64

    first = splitmix64(np.array([seed & _WORD], np.uint64))
    return int(splitmix64(first + np.uint64(index))[0]) >> 1


def check_params(params: SamplingParams, vocabulary: int) -> None:
    """ValueError if the settings name a token id that the model does not have."""
    for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        if ids and max(ids) >= vocabulary:
            raise ValueError(f"{name} names token {max(ids)}, but the ids go from 0 to {vocabulary - 1}")


class SamplerState:
    """What a draw depends on: the request's settings and seed, and the tokens seen before it.

    seen: ids and how often each stands in the reply; kept only if a penalty is on. The prompt counts for the
    repetition penalty alone. end_ids: forbidden, as stop_token_ids are, until min_tokens are out.
    """

    __slots__ = ("_early_bias", "_late_bias", "_outputs", "_places", "params", "seed", "seen")

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        prompt_ids: Iterable[int] = (),
        end_ids: Collection[int] = (),
    ) -> None:
        self.params = params
        self.seed = seed & _WORD
        self.seen: tuple[array[int], array[int]] = (array("i"), array("i"))
        self._places: dict[int, int] | None = None
        self._outputs = 0
        repeated = params.repetition_penalty != 1
        if repeated or params.presence_penalty or params.frequency_penalty:
            prompt = list(dict.fromkeys(prompt_ids)) if repeated else []
            self._places = {token: place for place, token in enumerate(prompt)}
            self.seen = (array("i", prompt), array("i", [0]) * len(prompt))
        bias = {id: b if b > -FLOAT32_MAX else _FORBIDDEN for id, b in params.logit_bias.items()}
        self._late_bias: Pairs = (tuple(bias), tuple(bias.values()))
        bias |= dict.fromkeys(params.stop_token_ids, _FORBIDDEN)
        bias |= dict.fromkeys(() if params.ignore_eos else end_ids, _FORBIDDEN)
        self._early_bias: Pairs = (tuple(bias), tuple(bias.values()))

    @property
    def plain(self) -> bool:
        """Whether no token is treated differently, now or later: no penalties or biases."""
        return self._places is None and not self._late_bias[0] and self.params.min_tokens == 0

    def observe(self, token: int) -> None:
        """Count a token of the reply."""
        self._outputs += 1
        if self._places is None:
            return
        ids, counts = self.seen
        place = self._places.setdefault(token, len(ids))
        if place == len(ids):
            ids.append(token)
            counts.append(0)
        counts[place] += 1

    def ahead(self, drafts: Sequence[int]) -> SamplerState:
        """The state after these tokens, should they come; the same one where they make no difference."""
        if not drafts or self.plain:
            return self
        state = copy(self)
        state.seen = (self.seen[0][:], self.seen[1][:])
        state._places = None if self._places is None else dict(self._places)
        for token in drafts:
            state.observe(token)
        return state

    @property
    def bias(self) -> Pairs:
        """What is added to the logits of the next token, by id."""
        return self._early_bias if self._outputs < self.params.min_tokens else self._late_bias
