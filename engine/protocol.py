"""What an application needs of an engine, wherever it runs: the edge that every kind of engine keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from .sampling_params import SamplingParams
from .types import EngineSnapshot

if TYPE_CHECKING:
    from kernels.arrays import Float32

    from .bandwidth import Peak
    from .prompt import Prompt
    from .stream import ResponseStream


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What an application wants to know of the loaded model.

    defaults: sampling settings its files ask for. notes: sentences about what is not as one would expect.
    place: what its peak bandwidth depends on: processor, memory, threads, size of the weights; "" if it has
    none.
    """

    name: str
    vocabulary: int
    context_length: int
    has_chat_template: bool
    defaults: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    place: str = ""


class Engine(Protocol):
    """An engine as its application sees it; `AsyncEngine` is the one in this process.

    Only plain values go in and out, but for the streams, which are the caller's own side of a reply.
    """

    async def __aenter__(self) -> Self:
        """Open it. Raises EngineError."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""

    async def close(self) -> None:
        """End every live request (aborted) and free the memory; closed already, nothing happens."""

    @property
    def info(self) -> ModelInfo:
        """The loaded model."""

    def snapshot(self) -> EngineSnapshot:
        """What the engine is doing; from any thread, at no cost to the step."""

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        continue_final: bool = False,
        template_vars: Mapping[str, Any] | None = None,
    ) -> ResponseStream:
        """Start a reply. TypeError: wrong types; everything else ends the stream with an error event."""

    def generate_many(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        n: int,
        continue_final: bool = False,
        template_vars: Mapping[str, Any] | None = None,
    ) -> list[ResponseStream]:
        """Start n replies to one prompt."""

    async def tokenize(
        self, prompt: Prompt, *, continue_final: bool = False, template_vars: Mapping[str, Any] | None = None
    ) -> list[int]:
        """The prompt ids that `generate` would use. Raises EngineError."""

    async def prepare(self, params: SamplingParams) -> None:
        """Make ready what replies with these settings keep to, before the first one. Raises EngineError."""

    async def score(self, ids: Sequence[int], *, chosen: bool = False) -> Float32:
        """Log-probabilities of a text's tokens. Raises EngineError."""

    def focus(self, stream: ResponseStream | None) -> None:
        """Let this conversation win ties for prefill and admission."""

    async def bandwidth_peak(self) -> float | None:
        """The best peak read bandwidth known in GB/s, measured anew if nothing runs; None: there is none."""

    @property
    def peak(self) -> Peak | None:
        """The best peak known, from any thread; nothing is measured."""

    def tell_peak(self, peak: Peak) -> None:
        """A peak that was measured earlier, at the same `ModelInfo.place`."""
