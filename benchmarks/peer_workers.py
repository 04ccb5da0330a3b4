"""The engines that `peers.py` compares, each in a process of its own and behind the same few calls.

    python peer_workers.py ENGINE MODEL THREADS             answers requests of `peers.py` on its pipes
    python peer_workers.py ENGINE MODEL THREADS PROMPT      streams one short reply, as a program that loads
                                                            the model for one question would

Imports only what its engine needs: the other engines live in another environment.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from importlib.metadata import version
from typing import Any, Protocol

PROMPT_TOKENS = 8
REPLY_TOKENS = 16
CONTEXT = 1024
WITHOUT_AMX = "WITHOUT_AMX" in os.environ
"""Compute as on a processor without a tile unit."""


class Worker(Protocol):
    """An engine with a loaded model. Prompts are random token ids, all replies greedy and of full length."""

    def about(self) -> str:
        """Version, and what it computes with."""

    def loaded(self) -> dict[str, float]:
        """Seconds that loading the model took, and MB of this process since: its own, and of mapped files."""

    def decode(self, streams: int, tokens: int) -> float:
        """Tokens a second of all streams together, while all of them decode."""

    def prefill(self, tokens: int) -> float:
        """Tokens a second of one prompt: its length / the time until the first token of the reply."""

    def one_shot(self, prompt: str) -> None:
        """Stream a reply of REPLY_TOKENS to standard output."""


def random_prompt(length: int) -> list[int]:
    """Ids that are ordinary words in every vocabulary; no two prompts alike, so that no cache helps."""
    return [random.randrange(1000, 30000) for _ in range(length)]


def loaded(started: float) -> dict[str, float]:
    """See `Worker.loaded`. Of memory nothing where the system does not say."""
    found = {"load": time.perf_counter() - started}
    try:
        with open("/proc/self/smaps_rollup") as lines:
            fields = [line.split() for line in lines]
    except OSError:
        return found
    of = {field[0]: int(field[1]) * 1024 / 1e6 for field in fields if field[0] in ("Rss:", "Anonymous:")}
    return {**found, "anonymous": of["Anonymous:"], "mapped": of["Rss:"] - of["Anonymous:"]}


def show(text: str) -> None:
    """Print a piece of a reply at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


class Kept:
    """A model whose runner can be asked directly, while its engine is idle."""

    def __init__(self, path: str) -> None:
        self._path = path

    def load(self, config: Any) -> Any:
        from dataclasses import replace

        from engine.model import load_model

        model = load_model(replace(config, model=self._path))
        self.runner: Any = model.runner
        return model


class Termchat:
    """This project's engine, through its public interface. Its one-shot is the `termchat` command."""

    def __init__(self, model: str, threads: int) -> None:
        import asyncio

        from engine import AsyncEngine, EngineConfig, SamplingParams

        self._params = SamplingParams
        self._loop = asyncio.new_event_loop()
        self._gather = asyncio.gather
        isa = "avx512" if WITHOUT_AMX else "auto"
        self._model = Kept(model)
        config = EngineConfig(
            model=self._model, threads=threads, context_length=CONTEXT, cpu_isa=isa, draft_model="none"
        )
        self._engine = AsyncEngine(config)
        started = time.perf_counter()
        self._loop.run_until_complete(self._engine.__aenter__())
        self._loaded = loaded(started)

    def loaded(self) -> dict[str, float]:
        return self._loaded

    def about(self) -> str:
        return f"{version('termchat')}, {self._model.runner._backend.device}"

    def _run(self, prompts: list[list[int]], tokens: int) -> list[tuple[float, Any]]:
        """For each prompt when it was submitted and its final event."""

        async def all_of_them() -> list[tuple[float, Any]]:
            params = self._params(temperature=0, max_tokens=tokens, ignore_eos=True)
            submitted = [(time.perf_counter(), self._engine.generate(prompt, params)) for prompt in prompts]
            return [(when, await stream.result()) for when, stream in submitted]

        finals = self._loop.run_until_complete(all_of_them())
        assert all(final.reason == "length" for _, final in finals), finals
        return finals

    def decode(self, streams: int, tokens: int) -> float:
        from engine import Finished, TextDelta

        params = self._params(temperature=0, max_tokens=tokens, ignore_eos=True)

        async def times(stream: Any) -> list[float]:
            """When each token came."""
            came: list[float] = []
            async for event in stream:
                assert isinstance(event, (TextDelta, Finished)), event
                count = len(event.token_ids) - (len(came) if isinstance(event, Finished) else 0)
                came += [time.perf_counter()] * count
            assert len(came) == tokens, came
            return came

        async def all_of_them() -> list[list[float]]:
            started = [self._engine.generate(random_prompt(PROMPT_TOKENS), params) for _ in range(streams)]
            return await self._gather(*map(times, started))

        came = self._loop.run_until_complete(all_of_them())
        # One that was submitted first may be a step ahead, and then the others' prompts come after its first.
        begin, end = max(stream[0] for stream in came), min(stream[-1] for stream in came)
        count = sum(begin < when <= end for stream in came for when in stream)
        return count / (end - begin) if end > begin else float("nan")

    def prefill(self, tokens: int) -> float:
        [(_, final)] = self._run([random_prompt(tokens)], 1)
        return tokens / final.timings.ttft_ms * 1e3

    def one_shot(self, prompt: str) -> None:
        raise NotImplementedError("the command line does it")

    def turns(self, history: int, message: int) -> dict[str, float]:
        """TTFT in ms of a first turn of `history` tokens, and of the second turn, `message` tokens longer."""
        prompt = random_prompt(history)
        [(_, first)] = self._run([prompt], REPLY_TOKENS)
        [(_, second)] = self._run([[*prompt, *first.token_ids, *random_prompt(message)]], 1)
        return {"first": first.timings.ttft_ms, "second": second.timings.ttft_ms}

    def bandwidth(self) -> dict[str, float]:
        """GB/s: peak of plain reads of a buffer of the weights' size, and what one decoding stream gets."""
        peak = self._model.runner.read_bandwidth()
        [(_, final)] = self._run([random_prompt(PROMPT_TOKENS)], 64)
        return {"peak": (peak or float("nan")) / 1e9, "achieved": final.timings.bandwidth_gbs}


class LlamaCpp:
    """llama.cpp through llama-cpp-python: its C functions, and the high-level class for a one-shot."""

    def __init__(self, model: str, threads: int) -> None:
        import llama_cpp

        self._api = llama_cpp
        self._threads = threads
        if WITHOUT_AMX:  # it is one of the "extra" formats; no other of them takes Q4_1 or Q8_0 on x86
            parameters = llama_cpp.llama_model_default_params()
            parameters.use_extra_bufts = False
            llama_cpp.llama_cpp.llama_model_default_params = lambda: parameters
        started = time.perf_counter()
        self._model = llama_cpp.Llama(model, n_threads=threads, n_threads_batch=threads, verbose=False)
        self._loaded = loaded(started)
        self._contexts: dict[int, Any] = {}
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)

    def loaded(self) -> dict[str, float]:
        return self._loaded

    def about(self) -> str:
        features = self._api.llama_print_system_info().decode()
        return f"llama-cpp-python {version('llama-cpp-python')}, {features.strip(' |')}"

    def _context(self, streams: int) -> Any:
        """An empty context for so many streams; its memory is kept, as a running program would keep it."""
        if streams not in self._contexts:
            parameters = self._api.llama_context_default_params()
            parameters.n_ctx = CONTEXT * streams
            parameters.n_batch = parameters.n_ubatch = 512
            parameters.n_seq_max = streams
            parameters.n_threads = parameters.n_threads_batch = self._threads
            self._contexts[streams] = self._api.llama_init_from_model(self._model.model, parameters)
        context = self._contexts[streams]
        self._api.llama_memory_clear(self._api.llama_get_memory(context), True)
        return context

    def _step(self, context: Any, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Decode rows (token, position, stream, whether logits are wanted) -> ids of the best tokens."""
        import numpy as np

        batch = self._batch
        for i, (token, position, stream, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, stream
        batch.n_tokens = len(rows)
        assert self._api.llama_decode(context, batch) == 0
        shape = (sum(wanted for *_, wanted in rows), self._model.n_vocab())
        logits = np.ctypeslib.as_array(self._api.llama_get_logits(context), shape=shape)
        best: list[int] = logits.argmax(axis=1).tolist()
        return best

    def decode(self, streams: int, tokens: int) -> float:
        context = self._context(streams)
        rows = [
            (token, position, stream, position == PROMPT_TOKENS - 1)
            for stream in range(streams)
            for position, token in enumerate(random_prompt(PROMPT_TOKENS))
        ]
        best = self._step(context, rows)
        started = time.perf_counter()
        for position in range(PROMPT_TOKENS, PROMPT_TOKENS + tokens - 1):
            best = self._step(context, [(token, position, stream, True) for stream, token in enumerate(best)])
        return streams * (tokens - 1) / (time.perf_counter() - started)

    def prefill(self, tokens: int) -> float:
        context = self._context(1)
        rows = [(token, i, 0, i == tokens - 1) for i, token in enumerate(random_prompt(tokens))]
        started = time.perf_counter()
        self._step(context, rows)
        return tokens / (time.perf_counter() - started)

    def scores(self, ids: list[int], path: str) -> None:
        """Log-probabilities of the token after each, float32 [tokens, vocabulary], into a .npy file."""
        import numpy as np

        context = self._context(1)
        self._step(context, [(token, i, 0, True) for i, token in enumerate(ids)])
        shape = len(ids), self._model.n_vocab()
        logits = np.ctypeslib.as_array(self._api.llama_get_logits(context), shape=shape)
        logits = logits - logits.max(axis=1, keepdims=True)
        np.save(path, logits - np.log(np.exp(logits.astype(np.float64)).sum(axis=1, keepdims=True)))

    def one_shot(self, prompt: str) -> None:
        messages = [{"role": "user", "content": prompt}]
        for part in self._model.create_chat_completion(
            messages, stream=True, temperature=0, max_tokens=REPLY_TOKENS
        ):
            show(part["choices"][0]["delta"].get("content") or "")


class OpenVino:
    """OpenVINO GenAI with its paged attention and continuous batching."""

    def __init__(self, model: str, threads: int) -> None:
        import openvino_genai

        self._api = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1  # GB
        scheduler.max_num_batched_tokens = 512
        scheduler.max_num_seqs = 64
        scheduler.enable_prefix_caching = False
        started = time.perf_counter()
        self._pipeline = openvino_genai.LLMPipeline(
            model, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads
        )
        self._loaded = loaded(started)

    def loaded(self) -> dict[str, float]:
        return self._loaded

    def about(self) -> str:
        from openvino import Core

        precision = Core().get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
        return f"openvino-genai {version('openvino-genai')}, computes in {precision}"

    def _config(self, tokens: int, *, ignore_eos: bool) -> Any:
        config = self._api.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.ignore_eos = tokens, False, ignore_eos
        return config

    def _run(self, prompts: list[list[int]], tokens: int) -> Any:
        import numpy as np
        from openvino import Tensor

        ids = np.array(prompts, np.int64)
        inputs = self._api.TokenizedInputs(Tensor(ids), Tensor(np.ones_like(ids)))
        return self._pipeline.generate(inputs, self._config(tokens, ignore_eos=True)).perf_metrics

    def decode(self, streams: int, tokens: int) -> float:
        metrics = self._run([random_prompt(PROMPT_TOKENS) for _ in range(streams)], tokens)
        times = metrics.raw_metrics.m_new_token_times  # of the steps, in ms
        assert len(times) == tokens, len(times)
        return streams * (tokens - 1) / (times[-1] - times[0]) * 1e3

    def prefill(self, tokens: int) -> float:
        return tokens / self._run([random_prompt(tokens)], 1).get_ttft().mean * 1e3

    def one_shot(self, prompt: str) -> None:
        self._pipeline.generate(prompt, self._config(REPLY_TOKENS, ignore_eos=False), show)


WORKERS: dict[str, type[Worker]] = {"termchat": Termchat, "llama.cpp": LlamaCpp, "OpenVINO": OpenVino}


def main() -> None:
    engine, model, threads, *prompt = sys.argv[1:]
    worker = WORKERS[engine](model, int(threads))
    if prompt:
        worker.one_shot(prompt[0])
        return
    # Whatever a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(worker, name)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
