"""A draft model beside the model it guesses for: opened, compared, placed, and given its cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..config import EngineConfig, ModelSource
from ..runner import ModelRunner, Runner
from ..types import EngineError
from .draft_model import ModelDrafter
from .drafter import ComputingDrafter, Drafter
from .ngram import NgramDrafter
from .speculation import most_drafts

if TYPE_CHECKING:
    from kernels.cache_format import CachedLayer
    from kernels.interface import Backend

    from ..loading.checkpoint import Checkpoint
    from ..tokenization import Tokenizer


class Target(NamedTuple):
    """A model that is to be guessed for: the tokens of a conversation, the bytes of its weights, whether a
    row's result depends on that row alone.
    """

    name: str
    tokenizer: Callable[[], Tokenizer]
    context_length: int
    nbytes: int
    exact: bool


class Drafting:
    """What drafts are made with, on its way beside a model that is loaded. Here: no draft model, or one
    without files.

    cached: layers that have keys in each slot of the model's cache. weight_bytes: in memory. most: drafts of
    a step. notes: sentences about what is not as one would expect it.
    """

    cached: tuple[CachedLayer, ...] = ()
    weight_bytes = 0
    notes: tuple[str, ...] = ()

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        off = config.draft_model in (None, "none")
        self.most = 0 if off else most_drafts(config.draft_window, config.sequences)

    def allocate(self, blocks: int) -> None:
        """Make the cache of a draft model with files, of so many blocks, in place of any earlier one.
        MemoryError: it does not fit.
        """

    def drafter(
        self, name: str, tokenizer: Tokenizer, vocabulary: int, exact: bool
    ) -> Drafter | ComputingDrafter | None:
        """What guesses for the model of that name, once its cache is there; None: nothing does.

        Where a row's result depends on its neighbours (not exact), drafts could change a reply, so there they
        are made only if asked for. EngineError, MemoryError.
        """
        config, source = self._config, self._config.draft_source
        if source is not None:
            assert not isinstance(source, (str, Path)), "a draft model with files is opened"
            return load_draft(source, config, name, tokenizer)
        if self.most == 0 or (config.draft_model == "auto" and not exact):
            return None
        return NgramDrafter()

    def close(self) -> None:
        """Free what was taken: the model could not be loaded."""


class OpenedDraft(Drafting):
    """A draft model whose weights are with a backend of its own, and which has no cache yet."""

    def __init__(self, checkpoint: Checkpoint, backend: Backend, config: EngineConfig, context: int) -> None:
        """EngineError as `load_model`. context: tokens of a conversation with the other model."""
        from kernels.native.mapped import MappedFiles

        from ..loading.fields import refusing
        from ..models.placing import place_tensors

        super().__init__(config)
        self.notes = checkpoint.notes
        self._name = checkpoint.name
        self._path = checkpoint.path
        self._blocks_of_one = -(-context // config.block_size)
        spec = checkpoint.spec
        self._spec = replace(spec, context_length=min(context, spec.context_length))
        self.cached = spec.cached
        self._files = MappedFiles(checkpoint.tensors.mappings())
        self._backend = backend
        with refusing(checkpoint.path):
            self._weights = place_tensors(self._spec, checkpoint.tensors, backend)
        self.weight_bytes = backend.weight_bytes

    def allocate(self, blocks: int) -> None:
        """See `Drafting`."""
        from kernels.cache_format import CacheShape

        from ..loading.fields import refusing

        config = self._config
        self._shape = CacheShape(self.cached, blocks, config.block_size, config.cache_format)
        with refusing(self._path):
            self._backend.allocate_cache(self._shape)

    def drafter(self, name: str, tokenizer: Tokenizer, vocabulary: int, exact: bool) -> ModelDrafter:
        """See `Drafting`: make its program."""
        from kernels.program import Limits

        from ..loading.fields import refusing
        from ..models.decoder import decoder
        from ..models.placing import place_rotations
        from ..roofline import Traffic

        config, spec, weights, backend = self._config, self._spec, self._weights, self._backend
        shape = self._shape
        positions = min(spec.context_length, shape.blocks * config.block_size)
        rotations = place_rotations(spec, weights, backend, positions)
        limits = Limits(config.max_batch_tokens, config.sequences, config.sequences, self._blocks_of_one)
        with refusing(self._path):
            program = backend.capture(lambda ops, batch: decoder(ops, spec, weights, batch), limits)
        traffic = Traffic.of(spec, weights.streamed_bytes, shape.layer_bytes, weights.expert_bytes)
        runner = ModelRunner(backend, program, traffic, config.block_size, self._files, rotations)
        return drafter_of(
            self._name,
            runner,
            config,
            vocabulary,
            spec.vocabulary,
            spec.context_length,
            shape.bytes_per_token,
        )

    def close(self) -> None:
        """Free the backend."""
        self._backend.close()


def draft_beside(config: EngineConfig, target: Target, free: int) -> Drafting:
    """What the drafts for a model are to be made with; a draft model is placed where that model will be.

    free: bytes of memory. EngineError: the draft model that was asked for can't be read, or has another
    vocabulary; nothing large is read then.
    """
    source, paired = config.draft_source, config.paired_draft
    if isinstance(source, (str, Path)):
        try:
            return _opened(source, config, target)
        except EngineError as error:
            raise EngineError(error.code, f"the draft model can't be used: {error.message}") from error
    drafting = Drafting(config)
    if config.draft_model == "auto" and paired is not None and target.exact:
        try:
            if leaves_room(paired, target.nbytes, free):
                return _opened(paired, config, target)
            why = "there is too little memory for both"
        except EngineError as error:
            why = error.message
        drafting.notes = (f"the draft model of {target.name} is not used: {why}",)
    return drafting


def leaves_room(source: str | Path, nbytes: int, free: int) -> bool:
    """Whether a draft model fits into the memory beside a model of so many bytes, with room for a cache.

    EngineError: it can't be read.
    """
    from ..loading.checkpoint import open_checkpoint
    from ..memory_plan import KV_SHARE_OF_MEMORY

    return open_checkpoint(source).tensors.nbytes() + nbytes <= free * (1 - KV_SHARE_OF_MEMORY)


def _opened(source: str | Path, config: EngineConfig, target: Target) -> OpenedDraft:
    from kernels.backends import open_backend

    from ..fitting import check_fit
    from ..loading.checkpoint import open_checkpoint
    from ..selection import select_backend
    from ..tokenization import tokenizer_of

    checkpoint = open_checkpoint(source)
    own = tokenizer_of(checkpoint.source, checkpoint.generation)
    check_vocabularies(target.name, target.tokenizer(), checkpoint.name, own)
    selection = select_backend(replace(config, tensor_parallel=1, pipeline_parallel=1))  # it is small
    backend = open_backend(selection.name, selection.settings)
    try:
        check_fit(checkpoint, backend.name, backend.free_bytes())
        draft = OpenedDraft(checkpoint, backend, config, target.context_length)
    except BaseException as error:
        backend.close()
        if isinstance(error, MemoryError):
            raise EngineError("out_of_memory", f"{checkpoint.name} does not fit: {error}") from error
        raise
    if checkpoint.tensors.nbytes() >= target.nbytes > 0:
        draft.notes += (
            f"the draft model {checkpoint.name} is no smaller than {target.name}: it saves no time",
        )
    return draft


def load_draft(source: ModelSource, config: EngineConfig, name: str, tokenizer: Tokenizer) -> ModelDrafter:
    """The drafter of a model without files; name, tokenizer: of the one it guesses for. EngineError."""
    loaded = source.load(replace(config, model=source, draft_model="none"))
    try:
        check_vocabularies(name, tokenizer, loaded.name, loaded.tokenizer)
    except BaseException:
        loaded.close()
        raise
    known, context = loaded.vocabulary, loaded.context_length
    return drafter_of(loaded.name, loaded.runner, config, tokenizer.vocab_size, known, context)


def drafter_of(
    name: str,
    runner: Runner,
    config: EngineConfig,
    vocabulary: int,
    known: int,
    context_length: int,
    bytes_per_token: int = 0,
) -> ModelDrafter:
    """The drafter of a model that is ready to run, in steps of the configuration's size."""
    return ModelDrafter(
        name,
        runner,
        vocabulary=vocabulary,
        known=known,
        context_length=context_length,
        rows=config.max_batch_tokens,
        block_size=config.block_size,
        bytes_per_token=bytes_per_token,
    )


def check_vocabularies(name: str, tokenizer: Tokenizer, draft_name: str, draft: Tokenizer) -> None:
    """EngineError(model_invalid): an id that both models have means something else to the draft model.

    Ids that only fill a table up are not compared, and one of the tables may go on behind the other's end.
    """
    token = tokenizer.first_difference(draft)
    if token is None:
        return
    ours, theirs = (repr(each.token_text(token)) for each in (tokenizer, draft))
    raise EngineError(
        "model_invalid",
        f"{draft_name} can't guess for {name}: their vocabularies differ, token {token} is {theirs} in "
        f"{draft_name} and {ours} in {name}; take a draft model of the same family, or --draft ngram",
    )
