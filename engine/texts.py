"""What a model's texts are made with: its tokenizer, its chat template, its grammars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from .types import EngineError, shown

if TYPE_CHECKING:
    from .config import EngineConfig
    from .grammar.grammars import Grammars
    from .loading.checkpoint import Checkpoint
    from .tokenization import Tokenizer


class Texts(NamedTuple):
    """end_ids: tokens that end a turn, of those that the model can draw."""

    tokenizer: Tokenizer
    end_ids: frozenset[int]
    grammars: Grammars


def prepare_texts(checkpoint: Checkpoint, constrained: bool) -> Texts:
    """Make the tokenizer, compile the chat template, and make what grammars take, if they are wanted."""
    from .grammar.grammars import Grammars
    from .tokenization import prepare_template, template_of, tokenizer_of

    vocabulary = checkpoint.spec.vocabulary
    tokenizer = tokenizer_of(checkpoint.source, checkpoint.generation)
    prepare_template(template_of(tokenizer, None))
    end_ids = frozenset(token for token in tokenizer.end_ids if token < vocabulary)
    grammars = Grammars(tokenizer, vocabulary, end_ids)
    if constrained:
        with suppress(EngineError):  # the first reply that needs it says what is wrong
            grammars.prepare()
    return Texts(tokenizer, end_ids, grammars)


@contextmanager
def texts_beside(checkpoint: Checkpoint, constrained: bool) -> Iterator[Callable[[], Texts]]:
    """`prepare_texts` on a thread while the weights are placed; what it gives waits for them."""
    from kernels.machine import has_few_addresses

    with ThreadPoolExecutor(1, thread_name_prefix="tokenizer") as beside:
        made: Callable[[], Texts] = partial(prepare_texts, checkpoint, constrained)
        # Where memory can be refused, what one thread finds free is not to be taken by the other.
        if not has_few_addresses():
            with suppress(RuntimeError):  # the system gives no further thread
                made = beside.submit(made).result
        yield made


def check_template(checkpoint: Checkpoint) -> None:
    """EngineError(template): nothing says how the model is given messages."""
    from .tokenization import NO_TEMPLATE, template_of, tokenizer_of

    generation = checkpoint.generation
    if generation.chat_template is not None:
        return
    if generation.templates:
        names = ", ".join(map(shown, generation.templates[:5]))
        raise EngineError(
            "template", f"the model has several chat templates ({names}), and none of them is its default"
        )
    if template_of(tokenizer_of(checkpoint.source, generation), None) is None:
        raise EngineError("template", NO_TEMPLATE)


def template_notes(config: EngineConfig, template: str | None, tokenizer: Tokenizer) -> list[str]:
    """What is odd about the chat template that was asked for: it is one for other models."""
    from .tokenization import foreign_marks

    if config.template is None or template is None or not (marks := foreign_marks(tokenizer, template)):
        return []
    named = ", ".join(marks[:3]) + (", ..." if len(marks) > 3 else "")
    return [f"the chat template writes {named}, which the model has no token for: they are words to it"]
