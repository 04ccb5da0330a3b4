"""A scripted model for tests: chosen tokens through the real scheduler, sampler and stop rules.

Not used by the product.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernels.sampling import sample as draw

from .config import EngineConfig
from .grammar.grammars import Grammars
from .grammar.masks import mask_writer
from .model import LoadedModel
from .named_templates import read_template
from .roofline import Traffic
from .runner import Flight, StepResult
from .speculative.pairing import Target, draft_beside
from .step_builder import StepBuilder
from .step_plan import StepPlan
from .texts import template_notes
from .tokenization import load_tokenizer

SURE = np.float32(1e6)
"""Logit of the scripted token, far above all others: no noise or penalty changes the choice."""


class ScriptedModel:
    """Emits given tokens: request i in submit order gets outputs[i], then the first end token. One a step,
    unless the config asks for drafts (`draft_model="ngram"`, or another script).

    tokenizer: path of a GGUF file or a tokenizer folder. eos: ids that end a turn; by default the
    tokenizer's.
    step_seconds: duration of every step, for tests of timing. beside: steps are computed beside the engine's
    thread, as on a GPU. fails: set it, and the next step raises it.
    """

    def __init__(
        self,
        outputs: Sequence[Sequence[int]],
        tokenizer: str | Path,
        eos: Sequence[int] | None = None,
        *,
        context_length: int = 8192,
        step_seconds: float = 0.0,
        beside: bool = False,
    ) -> None:
        self.outputs = [list(output) for output in outputs]
        self.tokenizer = tokenizer
        self.eos = None if eos is None else list(eos)
        self.context_length = context_length
        self.step_seconds = step_seconds
        self.beside = beside
        self.fails: BaseException | None = None

    def __str__(self) -> str:
        return "scripted"

    def wait(self) -> None:
        """Called by the engine's thread: the time that a step takes."""
        time.sleep(self.step_seconds)

    def load(self, config: EngineConfig) -> LoadedModel:
        """Called by the engine."""
        tokenizer = load_tokenizer(self.tokenizer)
        known = range(tokenizer.vocab_size)
        ends = sorted(tokenizer.end_ids.intersection(known)) if self.eos is None else self.eos
        for token in {token for output in self.outputs for token in output}:
            if token not in known:
                raise ValueError(f"token {token} of the script is outside 0 to {tokenizer.vocab_size - 1}")
        runner = ScriptedRunner(self, tokenizer.vocab_size, ends[0] if ends else 0, config.block_size)
        context = min(config.context_length or self.context_length, self.context_length)
        blocks = config.kv_blocks or 4 * -(-context // config.block_size)
        drafting = draft_beside(config, Target("scripted", lambda: tokenizer, context, 0, exact=False), 0)
        template = read_template(config.template) if config.template else tokenizer.chat_template
        return LoadedModel(
            name="scripted",
            runner=runner,
            tokenizer=tokenizer,
            vocabulary=tokenizer.vocab_size,
            context_length=context,
            blocks=blocks,
            block_size=config.block_size,
            end_ids=frozenset(ends),
            chat_template=template,
            defaults={},
            notes=tuple(template_notes(config, template, tokenizer)),
            drafter=drafting.drafter("scripted", tokenizer, tokenizer.vocab_size, exact=False),
            grammars=Grammars(tokenizer, tokenizer.vocab_size, frozenset(ends)),
        )


class ScriptedFlight(NamedTuple):
    """A step that is done at a time of the monotonic clock."""

    output: StepResult
    done: float

    @property
    def computed(self) -> bool:
        """See `Flight`."""
        return False

    def result(self) -> StepResult:
        """Wait for it."""
        time.sleep(max(0.0, self.done - time.monotonic()))
        return self.output


class ScriptedRunner:
    """Gives each sample row logits that point at the script's next token, and samples them as always."""

    backend = "scripted"
    device = "cpu"
    exact = True
    replaced = ()
    weight_bytes = 0
    working_bytes = 0

    def __init__(self, script: ScriptedModel, vocabulary: int, end: int, block_size: int) -> None:
        self.traffic = Traffic(0, 0)
        self._script = script
        self._end = end
        self._steps = StepBuilder(block_size)
        self._usual = np.random.default_rng(0).normal(0, 2, vocabulary).astype(np.float32)
        self._logits = np.empty((0, vocabulary), np.float32)
        self._raised: list[tuple[int, int]] = []

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There is no cache."""

    def prepare(self, plan: StepPlan) -> None:
        """See `Runner`."""
        self._steps.lay_out(plan)

    def launch(self, plan: StepPlan, *, logits: bool, prepared: bool = False) -> Flight:
        """One step of the script."""
        started = time.monotonic()
        if self._script.beside:
            return ScriptedFlight(self._compute(plan, logits, prepared), started + self._script.step_seconds)
        self._script.wait()
        return self._compute(plan, logits, prepared)

    def _compute(self, plan: StepPlan, logits: bool, prepared: bool) -> StepResult:
        if self._script.fails is not None:
            raise self._script.fails
        samples = plan.samples()
        if len(samples) > len(self._logits):
            self._logits = np.tile(self._usual, (len(samples), 1))
            self._raised = []
        for row, token in self._raised:
            self._logits[row, token] = self._usual[token]
        self._raised = [
            (index, self._scripted(sequence.id - 1, position - sequence.prompt_length))
            for index, (_, sequence, position) in enumerate(samples)
        ]
        for row, token in self._raised:
            self._logits[row, token] = SURE
        active = self._logits[: len(samples)]
        step = self._steps.finish(plan) if prepared else self._steps.build(plan)
        if (write_mask := mask_writer(step, plan.runs)) is not None:
            write_mask()
        tokens = draw(active, step)
        return StepResult(tokens.tolist(), active if logits else None)

    def _scripted(self, request: int, index: int) -> int:
        """Token `index` of a request's script; the end token after its end."""
        outputs = self._script.outputs
        script = outputs[request] if request < len(outputs) else []
        return script[index] if 0 <= index < len(script) else self._end

    def read_bandwidth(self) -> float | None:
        """Nothing is read."""
        return None

    def close(self) -> None:
        """Nothing to free."""
