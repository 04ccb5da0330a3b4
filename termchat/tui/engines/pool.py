"""The models in use: one engine each, as many as the memory holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ...registry_errors import RegistryError
from ...units import size
from ..background import in_background
from .loader import Loader
from .model_slot import EngineUnavailableError, ModelSlot

IDLE_CHECK_SECONDS = 0.1
_IN_MEMORY = ("loading", "ready")


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a model cannot be loaded beside others. needed, free: bytes; None: not even its cache fits."""

    needed: int | None
    free: int
    loaded: tuple[ModelSlot, ...]

    def sentence(self, title: str) -> str:
        """What is lacking for the model of this title."""
        wish = "more memory than there is" if self.needed is None else size(self.needed)
        beside = " and ".join(slot.title for slot in self.loaded)
        return f"{title} needs {wish}; {size(self.free)} are free beside {beside}"


class EnginePool:
    """A slot for each model that some conversation asked for. default: the one of new conversations."""

    def __init__(self, loader: Loader, changed: Callable[[], None]) -> None:
        """changed: called on the event loop when a model's state has changed."""
        self.default = ModelSlot(loader, changed)
        self._slots = [self.default]
        self._loader = loader
        self._changed = changed

    @property
    def known(self) -> list[ModelSlot]:
        """One for each model that some conversation asked for."""
        return list(self._slots)

    async def start(self, name: str | None, *, download: bool = False, first: str = "") -> None:
        """Read the registry and load the default model, or instead of it the `first` conversation's.

        name: the default from now on. download: bring what is absent.
        """
        self.default.name = name
        try:
            await in_background(self._loader.read)
        except Exception as error:
            self.default.fail(error)
            return
        for slot in self._slots:
            slot.look()
        slot = self.of(first)
        slot.load()
        if download and slot.entry is not None and slot.entry.is_fetched:
            slot.download(unseen=True)

    def of(self, model: str) -> ModelSlot:
        """The slot of a conversation's model; "" is the default."""
        if not model:
            return self.default
        # A name of the Hub says more once it is known which of the files it means.
        found = next((slot for slot in self._slots if model in (slot.reference, slot.name)), None)
        if found is None:
            found = ModelSlot(self._loader, self._changed, model)
            self._slots.append(found)
            if self._loader.registry is not None:
                found.look()
        return found

    @property
    def loaded(self) -> list[ModelSlot]:
        """Those with an engine."""
        return [slot for slot in self._slots if slot.engine is not None]

    @property
    def loading(self) -> bool:
        """Whether a load is at a point where it cannot be stopped."""
        return any(slot.loading for slot in self._slots)

    async def shortage(self, slot: ModelSlot) -> Shortage | None:
        """What keeps a model from being loaded beside the others; None if nothing does.

        Without others it is the engine that says whether the memory is enough.
        """
        others = [other for other in self._slots if other is not slot and other.state in _IN_MEMORY]
        model = slot.model
        if not others or model is None:
            return None
        loaded = tuple(self.loaded)
        from engine import EngineError

        try:
            plan = await in_background(lambda: self._loader.plan(model))
            reserved = [await self._reserved(other) for other in others]
        except EngineError as error:
            return Shortage(None, 0, loaded) if error.code == "out_of_memory" else None
        except RegistryError:  # of the draft model: loading says so
            return None
        needed, free = plan.nbytes, max(0, plan.free_bytes - sum(reserved))
        return Shortage(needed, free, loaded) if needed > free else None

    async def _reserved(self, slot: ModelSlot) -> int:
        """Bytes that a model has not taken yet but will: all while it loads, then its cache's free blocks."""
        model, snapshot = slot.model, slot.snapshot()
        assert model is not None, "it is loaded, or being loaded"
        plan = await in_background(lambda: self._loader.plan(model))
        if snapshot is None:
            return plan.nbytes
        return snapshot.blocks_free * snapshot.block_size * plan.kv_bytes_per_token

    async def ready(self, model: str) -> ModelSlot:
        """The slot of a conversation's model with its engine, loaded if it was not and there is room.

        EngineUnavailableError.
        """
        slot = self.of(model)
        if slot.state == "unloaded":
            lack = await self.shortage(slot)
            if lack is not None:
                raise EngineUnavailableError(f"{lack.sentence(slot.title)}; /unload frees some")
            slot.load()
        await slot.ready()
        return slot

    def load_instead(self, slot: ModelSlot, other: ModelSlot) -> None:
        """Load a model when another one has nothing to answer any more and is unloaded."""

        async def freed() -> None:
            while not other.idle:
                await asyncio.sleep(IDLE_CHECK_SECONDS)
            await other.unload()

        if self.default is other:
            self.default = slot
        slot.load(first=freed())

    async def close(self) -> None:
        """End all engines."""
        await asyncio.gather(*(slot.close() for slot in self._slots))
