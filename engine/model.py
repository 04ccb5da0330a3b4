"""A loaded model: what the engine thread needs to serve it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bandwidth import place_of
from .config import EngineConfig
from .named_templates import read_template
from .runner import ModelRunner, Runner
from .texts import Texts, check_template, template_notes, texts_beside
from .types import EngineError

if TYPE_CHECKING:
    from kernels.cache_format import CacheShape
    from kernels.program import Limits

    from .grammar.grammars import Grammars
    from .loading.checkpoint import Checkpoint
    from .loading.tensors import CheckpointTensors
    from .speculative.drafter import ComputingDrafter, Drafter
    from .speculative.pairing import Drafting
    from .tokenization import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Runner, tokenizer and limits of a model.

    blocks: size of the KV pool. end_ids: tokens that end a turn. defaults: sampling settings the model's
    files ask for (names of SamplingParams). notes: sentences about what is not as one would expect it.
    place: what the peak bandwidth depends on, see `ModelInfo`. drafter: guesses how replies go on. grammars:
    what replies can keep to; None: to nothing. ranks: how several processes share it, for people; "": one
    computes it.
    """

    name: str
    runner: Runner
    tokenizer: Tokenizer
    vocabulary: int
    context_length: int
    blocks: int
    block_size: int
    end_ids: frozenset[int]
    chat_template: str | None
    defaults: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    place: str = ""
    drafter: Drafter | ComputingDrafter | None = None
    grammars: Grammars | None = None
    ranks: str = ""

    def close(self) -> None:
        """Free memory and threads, those of a draft model, too."""
        from .speculative.drafter import ComputingDrafter

        try:
            self.runner.close()
        finally:
            if isinstance(self.drafter, ComputingDrafter):
                self.drafter.close()


def load_model(
    config: EngineConfig,
    chat: bool = False,
    watch: Callable[[float | str], None] | None = None,
    *,
    constrained: bool = False,
) -> LoadedModel:
    """Open the files, place the weights, make the KV cache and capture the decoder.

    chat: it is to be given messages, so a model without a chat template is refused before its weights are
    read. watch: told how much of the files has been used, 0 to 1, or in words what takes long before that;
    what it raises ends the load. constrained: replies are to keep to grammars, so what these take is made
    ready beside the weights.

    Raises EngineError: model_invalid (broken or unsupported files), out_of_memory (weights or cache do not
    fit), template (there is none, or the one asked for can't be read).
    """
    if not isinstance(config.model, (str, Path)):
        return config.model.load(config)
    checkpoint = _opened(config.model, config, chat)
    context = checkpoint.context_length(config.context_length)
    if config.ranks > 1:
        from .parallel.model import load_parallel

        return load_parallel(config, checkpoint, context, watch, constrained)
    try:
        return _load_here(config, checkpoint, context, watch, constrained)
    except MemoryError as error:
        raise EngineError("out_of_memory", f"{checkpoint.name} does not fit: {error}") from error


def _opened(path: str | Path, config: EngineConfig, chat: bool) -> Checkpoint:
    """The files, with the chat template that was asked for; chat: without any they are refused."""
    from .loading.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(path, config.quantization)
    if config.template is not None:
        generation = checkpoint.generation._replace(chat_template=read_template(config.template))
        checkpoint = checkpoint._replace(generation=generation)
    elif chat:
        check_template(checkpoint)
    return checkpoint


def _load_here(
    config: EngineConfig,
    checkpoint: Checkpoint,
    context: int,
    watch: Callable[[float | str], None] | None,
    constrained: bool,
) -> LoadedModel:
    """As `load_model`, in this process. MemoryError."""
    from kernels.backends import open_backend
    from kernels.native.mapped import MappedFiles

    from .capturing import LEAST_TOKENS, capture_within
    from .fitting import check_fit, fitted
    from .loading.fields import refusing
    from .memory_plan import size_kv_cache
    from .models.decoder import decoder
    from .models.placing import place_rotations, place_tensors
    from .reserve import take_reserved
    from .roofline import Traffic
    from .selection import select_backend

    spec = replace(checkpoint.spec, context_length=context)
    files = MappedFiles(checkpoint.tensors.mappings())
    with ExitStack() as undo:
        try:
            selection = select_backend(config)
            backend = open_backend(selection.name, selection.settings, watch or (lambda words: None))
        except ValueError as error:
            raise EngineError("model_invalid", str(error)) from error
        undo.callback(backend.close)
        free = backend.free_bytes() + take_reserved()
        drafting = drafting_for(config, checkpoint, context, backend.exact, free)
        undo.callback(drafting.close)
        free -= drafting.weight_bytes
        checkpoint = fitted(checkpoint, config, backend.name, free, backend.device)
        check_fit(checkpoint, backend.name, free)
        with refusing(checkpoint.path):  # values that can't be held in any format
            weights = place_tensors(spec, _watched(checkpoint, selection.settings.threads, watch), backend)
        # Matrices that lie in a file as they are take their memory only when they are repacked.
        left = min(backend.free_bytes(), free - backend.weight_bytes)
        shape = size_kv_cache(config, spec.cached, context, left, backend.device, drafting.cached)
        # A file may declare any context: what is made for positions follows what the cache can hold of them.
        positions = min(context, shape.blocks * shape.block_size)
        rotations = place_rotations(spec, weights, backend, positions)
        limits = limits_of(config, context, drafting)
        least = -(-min(context, LEAST_TOKENS) // config.block_size)
        # The interpreter has the tokenizer to make while the native backend repacks the weights without it;
        # it looks at their values only then.
        with texts_beside(checkpoint, constrained) as texts_made, refusing(checkpoint.path):
            captured = capture_within(
                backend,
                shape,
                lambda: backend.capture(lambda ops, batch: decoder(ops, spec, weights, batch), limits),
                limits,
                positions,
                least=shape.blocks if config.sizes_cache else least,
                beside=drafting.allocate,
            )
        texts = texts_made()
        if files.lost:
            raise EngineError("model_invalid", f"{checkpoint.path}: the file was cut short while it was read")
        drafter = drafting.drafter(checkpoint.name, texts.tokenizer, spec.vocabulary, backend.exact)
        _tidy(checkpoint)
        shape = captured.shape
        traffic = Traffic.of(spec, weights.streamed_bytes, shape.layer_bytes, weights.expert_bytes)
        runner = ModelRunner(backend, captured.program, traffic, config.block_size, files, rotations)
        notes = (*checkpoint.notes, *selection.notes, *captured.notes, *drafting.notes)
        model = loaded_model(
            config, checkpoint, runner, texts, context, shape, notes, backend.device, drafter
        )
        undo.pop_all()
    return model


def drafting_for(
    config: EngineConfig, checkpoint: Checkpoint, context: int, exact: bool, free: int
) -> Drafting:
    """What drafts for the model in the checkpoint are made with."""
    from .speculative.pairing import Target, draft_beside
    from .tokenization import tokenizer_of

    target = Target(
        checkpoint.name,
        lambda: tokenizer_of(checkpoint.source, checkpoint.generation),
        context,
        checkpoint.tensors.nbytes(),
        exact,
    )
    return draft_beside(config, target, free)


def limits_of(config: EngineConfig, context: int, drafting: Drafting) -> Limits:
    """The largest step that there can be."""
    from kernels.program import Limits

    from .scheduler import most_samples

    return Limits(
        rows=config.max_batch_tokens,
        samples=min(config.max_batch_tokens, most_samples(config.sequences, drafting.most)),
        sequences=config.sequences,
        blocks_per_sequence=-(-context // config.block_size),
    )


def _tidy(checkpoint: Checkpoint) -> None:
    """Give back what only loading took: pages of the files' headers, free parts of the heap."""
    import numpy as np

    from kernels.machine import trim_heap
    from kernels.stored import release

    for mapping in checkpoint.tensors.mappings():
        release(np.frombuffer(mapping, np.uint8))
    trim_heap()


def loaded_model(
    config: EngineConfig,
    checkpoint: Checkpoint,
    runner: ModelRunner,
    texts: Texts,
    context: int,
    shape: CacheShape,
    notes: tuple[str, ...],
    device: str,
    drafter: Drafter | ComputingDrafter | None,
    ranks: str = "",
) -> LoadedModel:
    """What the engine's thread gets, of what was loaded. device: where, for people."""
    template = checkpoint.generation.chat_template
    return LoadedModel(
        name=checkpoint.name,
        runner=runner,
        tokenizer=texts.tokenizer,
        vocabulary=checkpoint.spec.vocabulary,
        context_length=context,
        blocks=shape.blocks,
        block_size=config.block_size,
        end_ids=texts.end_ids,
        chat_template=template,
        defaults=checkpoint.generation.defaults,
        notes=(*notes, *template_notes(config, template, texts.tokenizer)),
        place=place_of(device, runner.traffic.all_weight_bytes),
        drafter=drafter,
        grammars=texts.grammars,
        ranks=ranks,
    )


def _watched(
    checkpoint: Checkpoint, threads: int | None, watch: Callable[[float | str], None] | None
) -> CheckpointTensors:
    """The tensors, which tell how far they have been used, and are quantized on so many threads."""
    tensors = checkpoint.tensors
    total, used = tensors.stored_bytes, 0

    def after(nbytes: int) -> None:
        nonlocal used
        used += nbytes
        if watch is not None:
            watch(min(1.0, used / max(1, total)))

    return tensors._replace(threads=threads, after=after)
