"""A loaded model: what the engine thread needs to serve it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bandwidth import place_of
from .config import EngineConfig
from .named_templates import read_template
from .runner import ModelRunner, Runner
from .types import EngineError

if TYPE_CHECKING:
    from kernels.cache_format import CacheShape
    from kernels.interface import Limits

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
    watch: Callable[[float], None] | None = None,
    *,
    constrained: bool = False,
) -> LoadedModel:
    """Open the files, place the weights, make the KV cache and capture the decoder.

    chat: it is to be given messages, so a model without a chat template is refused before its weights are
    read. watch: told how much of the files has been used, 0 to 1; what it raises ends the load. constrained:
    replies are to keep to grammars, so what these take is made ready beside the weights.

    Raises EngineError: model_invalid (broken or unsupported files), out_of_memory (weights or cache do not
    fit), template (there is none, or the one asked for can't be read).
    """
    if not isinstance(config.model, (str, Path)):
        return config.model.load(config)
    from kernels.backends import open_backend
    from kernels.machine import has_few_addresses
    from kernels.native.mapped import MappedFiles

    from .capturing import LEAST_TOKENS, capture_within
    from .fitting import check_fit, fitted
    from .loading.checkpoint import open_checkpoint
    from .loading.fields import invalid
    from .memory_plan import size_kv_cache
    from .models.decoder import decoder
    from .models.weights import place_rotations, place_tensors
    from .reserve import take_reserved
    from .roofline import Traffic
    from .selection import select_backend
    from .speculative.pairing import Drafting

    checkpoint = open_checkpoint(config.model, config.quantization)
    if config.template is not None:
        generation = checkpoint.generation._replace(chat_template=read_template(config.template))
        checkpoint = checkpoint._replace(generation=generation)
    elif chat and checkpoint.generation.chat_template is None:
        _check_form(checkpoint)
    context = checkpoint.context_length(config.context_length)
    spec = replace(checkpoint.spec, context_length=context)
    if config.ranks > 1:
        from .parallel.model import load_parallel

        return load_parallel(config, checkpoint, context, watch, constrained)
    selection = select_backend(config)
    files = MappedFiles(checkpoint.tensors.mappings())
    try:
        backend = open_backend(selection.name, selection.settings)
    except ValueError as error:
        raise EngineError("model_invalid", str(error)) from error
    except MemoryError as error:
        raise EngineError("out_of_memory", f"{checkpoint.name} does not fit: {error}") from error
    drafting = Drafting(config)
    try:
        free = backend.free_bytes() + take_reserved()
        drafting = drafting_for(config, checkpoint, context, backend.exact, free)
        free -= drafting.weight_bytes
        checkpoint = fitted(checkpoint, config, backend.name, free, backend.device)
        check_fit(checkpoint, backend.name, free)
        try:
            weights = place_tensors(spec, _watched(checkpoint, selection.settings.threads, watch), backend)
        except ValueError as error:  # values that can't be held in any format; it names the tensor
            raise invalid(checkpoint.path, str(error)) from None
        # Matrices that lie in a file as they are take their memory only when they are repacked.
        left = min(backend.free_bytes(), free - backend.weight_bytes)
        shape = size_kv_cache(config, spec, context, left, backend.device, drafting.cached)
        # A file may declare any context: what is made for positions follows what the cache can hold of them.
        positions = min(context, shape.blocks * shape.block_size)
        rotations = place_rotations(spec, weights, backend, positions)
        limits = limits_of(config, context, drafting)
        least = -(-min(context, LEAST_TOKENS) // config.block_size)
        # The interpreter has the tokenizer to make while the native backend repacks the weights without it.
        with ThreadPoolExecutor(1, thread_name_prefix="tokenizer") as beside:
            made = None
            # Where memory can be refused, what one thread finds free is not to be taken by the other.
            if not has_few_addresses():
                with suppress(RuntimeError):  # the system gives no further thread
                    made = beside.submit(prepared_tokenizer, checkpoint, spec.vocabulary, constrained)
            try:
                captured = capture_within(
                    backend,
                    shape,
                    lambda: backend.capture(lambda ops, batch: decoder(ops, spec, weights, batch), limits),
                    limits,
                    positions,
                    least=shape.blocks if config.sizes_cache else least,
                )
            except ValueError as error:  # as above: the native backend looks at the values only now
                raise invalid(checkpoint.path, str(error)) from None
        tokenizer, grammars = (
            prepared_tokenizer(checkpoint, spec.vocabulary, constrained) if made is None else made.result()
        )
        if files.lost:
            raise EngineError("model_invalid", f"{checkpoint.path}: the file was cut short while it was read")
        shape = captured.shape
        drafter = drafting.drafter(checkpoint.name, tokenizer, spec.vocabulary, shape.blocks, backend.exact)
        _tidy(checkpoint)
    except BaseException as error:
        drafting.close()
        backend.close()
        if isinstance(error, MemoryError):
            raise EngineError("out_of_memory", f"{checkpoint.name} does not fit: {error}") from error
        raise
    traffic = Traffic.of(spec, weights.streamed_bytes, shape.layer_bytes, weights.expert_bytes)
    runner = ModelRunner(backend, captured.program, traffic, config.block_size, files, rotations)
    notes = (*checkpoint.notes, *selection.notes, *captured.notes, *drafting.notes)
    prepared = tokenizer, grammars
    return loaded_model(config, checkpoint, runner, prepared, context, shape, notes, backend.device, drafter)


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
    from kernels.interface import Limits

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
    prepared: tuple[Tokenizer, Grammars],
    context: int,
    shape: CacheShape,
    notes: tuple[str, ...],
    device: str,
    drafter: Drafter | ComputingDrafter | None,
    ranks: str = "",
) -> LoadedModel:
    """What the engine's thread gets, of what was loaded. device: where, for people."""
    tokenizer, grammars = prepared
    template, vocabulary = checkpoint.generation.chat_template, checkpoint.spec.vocabulary
    return LoadedModel(
        name=checkpoint.name,
        runner=runner,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        context_length=context,
        blocks=shape.blocks,
        block_size=config.block_size,
        end_ids=_ends(tokenizer, vocabulary),
        chat_template=template,
        defaults=checkpoint.generation.defaults,
        notes=(*notes, *template_notes(config, template, tokenizer)),
        place=place_of(device, runner.traffic.all_weight_bytes),
        drafter=drafter,
        grammars=grammars,
        ranks=ranks,
    )


def _check_form(checkpoint: Checkpoint) -> None:
    """EngineError(template): nothing says how the model, which has no template, is given messages."""
    from .tokenization import NO_TEMPLATE, template_of, tokenizer_of

    if template_of(tokenizer_of(checkpoint.source, checkpoint.generation), None) is None:
        raise EngineError("template", NO_TEMPLATE)


def template_notes(config: EngineConfig, template: str | None, tokenizer: Tokenizer) -> list[str]:
    """What is odd about the chat template that was asked for: it is one for other models."""
    from .tokenization import foreign_marks

    if config.template is None or template is None or not (marks := foreign_marks(tokenizer, template)):
        return []
    named = ", ".join(marks[:3]) + (", ..." if len(marks) > 3 else "")
    return [f"the chat template writes {named}, which the model has no token for: they are words to it"]


def _watched(
    checkpoint: Checkpoint, threads: int | None, watch: Callable[[float], None] | None
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


def _ends(tokenizer: Tokenizer, vocabulary: int) -> frozenset[int]:
    """The end tokens that the model can draw."""
    return frozenset(token for token in tokenizer.end_ids if token < vocabulary)


def prepared_tokenizer(
    checkpoint: Checkpoint, vocabulary: int, constrained: bool
) -> tuple[Tokenizer, Grammars]:
    """The tokenizer, with the chat template compiled, and what grammars take, if they are wanted."""
    from .grammar.grammars import Grammars
    from .tokenization import prepare_template, template_of, tokenizer_of

    tokenizer = tokenizer_of(checkpoint.source, checkpoint.generation)
    prepare_template(template_of(tokenizer, None))
    grammars = Grammars(tokenizer, vocabulary, _ends(tokenizer, vocabulary))
    if constrained:
        with suppress(EngineError):  # the first reply that needs it says what is wrong
            grammars.prepare()
    return tokenizer, grammars
