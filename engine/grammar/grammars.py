"""The grammars that replies of one model keep to: compiled once each, for its vocabulary."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernels.machine import usable_cpus

from ..commands import Source
from ..sampling_params import ConstraintKind, SamplingParams
from ..tokenization import Tokenizer
from ..types import EngineError
from .constraint import Constraint
from .source import compile_source, complaint, limits, missing, refused
from .thinking import Marks, Part, answer_begun, marks_of, part_after
from .tokens import Tokens, library_tokenizer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLTokenizer

KEPT = 16
"""Compiled grammars that are kept for further replies."""

MOST_THREADS = 8
"""Threads that work out masks of one step."""

_NOWHERE = "NoExtension"
"""How the library says that no token leads on."""


class _Vocabulary(NamedTuple):
    """What the library makes of the model's tokens: takes a tenth of a second and more."""

    tokens: Tokens
    library: LLTokenizer
    executor: LLExecutor
    marks: Marks | None


class Grammars:
    """Constraints for one model's replies; from any thread. Nothing is made before the first is asked for."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_ids: Collection[int]) -> None:
        """vocabulary: number of logits. end_ids: tokens that end a turn."""
        self._tokenizer = tokenizer
        self._size = vocabulary
        self._ends = end_ids
        self._lock = threading.Lock()
        self._vocabulary: _Vocabulary | None = None
        self._compiled: OrderedDict[tuple[ConstraintKind, str], Future[LLMatcher]] = OrderedDict()

    def prepare(self) -> _Vocabulary:
        """Make what all grammars share. Raises EngineError(grammar)."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = self._made()
            return self._vocabulary

    def constraint(self, params: SamplingParams, source: Source, prompt: Sequence[int]) -> Constraint | None:
        """What a reply to this prompt keeps to; None: to nothing. Raises EngineError(grammar).

        A model that thinks may do so before it answers, if the prompt came through the chat template. A reply
        that is continued keeps to the grammar as a whole.
        """
        if params.constraint is None:
            return None
        shared = self.prepare()
        matcher = self._matcher(shared, *params.constraint).deep_copy()
        part: Part = "answer"
        marks = shared.marks if isinstance(source.content, tuple) else None
        if source.continue_final and isinstance(source.content, tuple) and source.content:
            begun = answer_begun(source.content[-1].content)
            if begun is None and marks is not None:
                part = "thinking"
            else:
                _take_in(matcher, shared, begun or "", params.constraint[0])
        elif marks is not None:
            part = part_after(self._tokenizer, marks, prompt)
        return Constraint(matcher, shared.executor, -(-self._size // 32), self._ends, marks, part)

    def _matcher(self, shared: _Vocabulary, kind: ConstraintKind, text: str) -> LLMatcher:
        """A compiled grammar at its beginning, for copies; who asks while it is compiled waits for it."""
        with self._lock:
            found = self._compiled.get((kind, text))
            mine = found is None
            if found is None:
                found = self._compiled[kind, text] = Future()
                if len(self._compiled) > KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end((kind, text))
        if mine:
            try:
                found.set_result(_compiled(shared, kind, text, self._size))
            except BaseException as error:
                with self._lock:
                    self._compiled.pop((kind, text), None)
                found.set_exception(error)
        return found.result()

    def _made(self) -> _Vocabulary:
        try:
            from llguidance import LLExecutor
        except ImportError as error:
            raise missing(error) from error
        if not self._ends:
            raise EngineError("grammar", "the model has no end token, so a reply could not end")
        tokens = Tokens(self._tokenizer, self._size, self._ends)
        executor = LLExecutor(min(usable_cpus(), MOST_THREADS))
        marks = marks_of(self._tokenizer, self._size)
        return _Vocabulary(tokens, library_tokenizer(tokens, self._ends), executor, marks)


def _compiled(shared: _Vocabulary, kind: ConstraintKind, text: str, size: int) -> LLMatcher:
    """A grammar for a vocabulary. Raises EngineError(grammar), also if no text keeps to it."""
    from llguidance import LLMatcher

    source = compile_source(kind, text)
    if message := complaint(source, shared.library):
        raise refused(kind, text, message)
    matcher = LLMatcher(shared.library, source, log_level=0, limits=limits())
    if matcher.is_error():
        raise refused(kind, text, matcher.get_error())
    trial = matcher.deep_copy()
    mask = np.zeros(-(-size // 32), np.uint32)
    trial.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    if trial.is_error():
        why = trial.get_error()
        if not why.startswith(_NOWHERE):
            raise refused(kind, text, why)
        raise EngineError("grammar", f"no text keeps to the {kind}")
    return matcher


def _take_in(matcher: LLMatcher, shared: _Vocabulary, begun: str, kind: ConstraintKind) -> None:
    """Go along with the beginning of a reply. Raises EngineError(grammar): it does not fit."""
    ids = shared.tokens(begun)
    count = matcher.try_consume_tokens(ids)
    if count < len(ids):
        fits = shared.tokens.text(ids[:count])
        raise EngineError(
            "grammar", f"the reply to be continued does not keep to the {kind}: it fits up to {fits[-40:]!r}"
        )
