"""A model whose steps are computed on a thread of their own, as a GPU computes beside the engine's thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any

from engine import EngineConfig
from engine.model import LoadedModel, load_model
from engine.runner import ModelRunner
from kernels.program import Program, StepOutput, WriteMask
from kernels.step import Step


class Beside:
    """model: the path of one, or what loads one. watch: told `launch` and `result` as they are called."""

    def __init__(self, model: Any, watch: Callable[[str], object] = lambda event: None) -> None:
        self._model = model
        self._watch = watch

    def __str__(self) -> str:
        return f"{self._model} beside"

    def load(self, config: EngineConfig) -> LoadedModel:
        loads = hasattr(self._model, "load")
        loaded: LoadedModel = (
            self._model.load(config) if loads else load_model(replace(config, model=self._model))
        )
        runner = loaded.runner
        assert isinstance(runner, ModelRunner)
        runner._program = BesideProgram(runner._program, self._watch)
        return loaded


class BesideProgram:
    def __init__(self, program: Program, watch: Callable[[str], object]) -> None:
        self._program = program
        self._watch = watch
        self._thread = ThreadPoolExecutor(1)

    def launch(self, step: Step, *, logits: bool = False, write_mask: WriteMask | None = None) -> Flying:
        self._watch("launch")
        written = Event()

        def compute() -> StepOutput:
            wait = None if write_mask is None else lambda: assert_in_time(written)
            return self._program.launch(step, logits=logits, write_mask=wait).result()

        future = self._thread.submit(compute)
        try:
            if write_mask is not None:
                write_mask()
                self._watch("masked")
        finally:
            written.set()
        return Flying(future, self._watch)


def assert_in_time(written: Event) -> None:
    assert written.wait(60), "the mask does not come"


class Flying:
    computed = False

    def __init__(self, future: Future[StepOutput], watch: Callable[[str], object]) -> None:
        self._future = future
        self._watch = watch

    def result(self) -> StepOutput:
        self._watch("result")
        return self._future.result()
