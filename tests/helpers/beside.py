"""A model whose steps are computed on a thread of their own, as a GPU computes beside the engine's thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from engine import EngineConfig
from engine.model import LoadedModel, load_model
from engine.runner import StepResult
from engine.step_plan import StepPlan


class Beside:
    """model: the path of one, or what loads one. watch: told `launch` and `result` as they are called."""

    def __init__(self, model: Any, watch: Callable[[str], object] = lambda event: None) -> None:
        self._model = model
        self._watch = watch

    def __str__(self) -> str:
        return f"{self._model} beside"

    def load(self, config: EngineConfig) -> LoadedModel:
        from dataclasses import replace

        if hasattr(self._model, "load"):
            loaded: LoadedModel = self._model.load(config)
        else:
            loaded = load_model(replace(config, model=self._model))
        launch, close = loaded.runner.launch, loaded.runner.close
        thread = ThreadPoolExecutor(1)

        def begin(plan: StepPlan, *, logits: bool) -> Flying:
            self._watch("launch")
            return Flying(thread.submit(lambda: launch(plan, logits=logits).result()), self._watch)

        def end() -> None:
            thread.shutdown()
            close()

        loaded.runner.launch, loaded.runner.close = begin, end  # type: ignore[method-assign]
        return loaded


class Flying:
    computed = False

    def __init__(self, future: Future[StepResult], watch: Callable[[str], object]) -> None:
        self._future = future
        self._watch = watch

    def result(self) -> StepResult:
        self._watch("result")
        return self._future.result()
