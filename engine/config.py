"""Engine configuration: every field with its unit and range, checked on creation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, get_args

from .types import shown

if TYPE_CHECKING:
    from .model import LoadedModel

Backend = Literal["auto", "reference", "native", "triton"]
CpuIsa = Literal["auto", "amx", "avx512", "avx2", "portable"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["auto", "none", "int8", "int4", "nf4"]
KVDtype = Literal["auto", "float32", "float16", "bfloat16", "int8"]
KV_SHORT = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""Other names of such formats, which are taken for them."""

DRAFT_WORDS = ("auto", "ngram", "none")
"""What `draft_model` can be besides a model."""


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {shown(value)}")


def _range(name: str, value: object, low: int, high: int, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer in [{low}, {high}] {unit}, not {shown(value)}")


class ModelSource(Protocol):
    """Something other than a path that can be an EngineConfig's model, such as a script for tests."""

    def load(self, config: EngineConfig) -> LoadedModel:
        """Make the model; called on the engine thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How an engine is set up. Only `model` must be given; None and "auto" take a default from the machine.

    model: path of a GGUF file or of a safetensors folder, or what makes a model without files.
    device: auto, cpu, cuda, cuda:N or mps. backend: auto, native (CPU), triton (CUDA GPU) or reference.
    dtype: arithmetic of the reference and triton backends.
    quantization: format of the weights: auto as stored if they fit into the free memory, else int8 or int4;
    none as floats; int8, int4 or nf4 packs wider ones.
    kv_dtype: how keys and values are stored; auto is float16, int8 takes about half the memory and traffic,
    bfloat16 holds values of any size; f32, f16 and bf16 are short for the long names.
    block_size: tokens a KV block, 16 or 32.
    kv_memory: bytes for the KV cache. kv_blocks: number of blocks instead, overrides kv_memory.
    max_batch_tokens: token rows a step. prefill_chunk: prompt tokens a step while others decode; auto follows
    the measured step time. prefix_cache: reuse the blocks of equal prompt beginnings.
    max_sequences: conversations in the batch; by default 64, or max_batch_tokens if that is less.
    max_waiting: requests in the queue before a submit is refused.
    template: chat template instead of the model's own: a name (`named_templates`), the path of a file, or its
    text. context_length: tokens a conversation, at most what the model was made for. threads: CPU threads.
    cpu_isa: instruction set of the native backend, auto for the best of this CPU; the tokens are the same.
    draft_model: what guesses how replies go on, so that a step can bring several tokens; the tokens are the
    same. The path of a smaller model with the same vocabulary (or what makes one without files); ngram: the
    conversation itself, where its end stood in it before; auto: that, if the backend is exact; none or None.
    paired_draft: path of a draft model that auto takes instead, if it can be used and leaves enough memory.
    draft_tokens: guesses a step for each conversation, for as long as there are any; auto: as many as make it
    faster, by measured times.
    tensor_parallel: processes, each on a GPU of its own where there are any, that share each layer;
    pipeline_parallel: stages of layers, one behind the other. Both together: their product.
    exact: a reply does not depend on what else is in the batch; false: products with plain weights are those
    of the GPU's vendor, which may be faster and promise nothing of the kind.
    findings: folder for what is found out about a GPU's kernels, so that it is not looked for at each start.
    """

    model: str | Path | ModelSource
    device: str = "auto"
    backend: Backend = "auto"
    dtype: Dtype = "auto"
    quantization: Quantization = "auto"
    kv_dtype: KVDtype = "auto"
    block_size: int = 32
    kv_memory: int | None = None
    kv_blocks: int | None = None
    max_batch_tokens: int = 512
    prefill_chunk: int | Literal["auto"] = "auto"
    prefix_cache: bool = True
    max_sequences: int | None = None
    max_waiting: int = 1024
    template: str | None = None
    context_length: int | None = None
    threads: int | None = None
    cpu_isa: CpuIsa = "auto"
    draft_model: str | Path | ModelSource | None = "auto"
    paired_draft: str | Path | None = None
    draft_tokens: int | Literal["auto"] = "auto"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    exact: bool = True
    findings: str | Path | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, (str, Path)) and not hasattr(self.model, "load"):
            raise ValueError(f"model must be the path of a file or folder, not {shown(self.model)}")
        _choice("backend", self.backend, get_args(Backend))
        _choice("cpu_isa", self.cpu_isa, get_args(CpuIsa))
        _choice("dtype", self.dtype, get_args(Dtype))
        _choice("quantization", self.quantization, get_args(Quantization))
        object.__setattr__(self, "kv_dtype", KV_SHORT.get(str(self.kv_dtype), self.kv_dtype))
        _choice("kv_dtype", self.kv_dtype, get_args(KVDtype))
        named = isinstance(self.draft_model, (str, Path, type(None))) and self.draft_model != ""
        if not (named or hasattr(self.draft_model, "load")):
            words = ", ".join(DRAFT_WORDS)
            raise ValueError(
                f"draft_model must be one of {words} or the path of a model, not {shown(self.draft_model)}"
            )
        kind, colon, index = (self.device if isinstance(self.device, str) else "").partition(":")
        if kind not in ("auto", "cpu", "cuda", "mps") or (
            colon and (kind != "cuda" or not (index.isascii() and index.isdecimal()))
        ):
            raise ValueError(f"device must be auto, cpu, cuda, cuda:N or mps, not {shown(self.device)}")
        if not isinstance(self.block_size, int) or self.block_size not in (16, 32):
            raise ValueError(f"block_size must be 16 or 32 tokens, not {shown(self.block_size)}")
        _range("max_batch_tokens", self.max_batch_tokens, 1, 1 << 20, "tokens")
        _range("max_waiting", self.max_waiting, 0, 1 << 30, "requests")
        _range("max_sequences", self.sequences, 1, 1 << 16, "sequences")
        if self.sequences > self.max_batch_tokens:
            raise ValueError(
                f"max_sequences ({self.max_sequences}) must not exceed max_batch_tokens "
                f"({self.max_batch_tokens}): every running conversation takes a row in each step"
            )
        if self.prefill_chunk != "auto":
            _range("prefill_chunk", self.prefill_chunk, 1, 1 << 20, "tokens")
        if self.draft_tokens != "auto":
            _range("draft_tokens", self.draft_tokens, 1, 32, "tokens")
        _range("tensor_parallel", self.tensor_parallel, 1, 64, "processes")
        _range("pipeline_parallel", self.pipeline_parallel, 1, 64, "stages")
        if self.ranks > 1:
            self._check_ranks(kind, colon)
        for name in ("prefix_cache", "exact"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, not {shown(getattr(self, name))}")
        if not isinstance(self.findings, (str, Path, type(None))):
            raise ValueError(f"findings must be the path of a folder, not {shown(self.findings)}")
        if self.template is not None:
            from .named_templates import check_template  # most models have their own

            check_template(self.template)
        optional = {
            "kv_memory": (1, 1 << 50, "bytes"),
            "kv_blocks": (1, 1 << 26, "blocks"),
            "context_length": (2, 1 << 31, "tokens"),
            "threads": (1, 1024, "threads"),
        }
        for name, (low, high, unit) in optional.items():
            if getattr(self, name) is not None:
                _range(name, getattr(self, name), low, high, unit)

    def _check_ranks(self, kind: str, colon: str) -> None:
        """What several processes can't do."""
        asked = f"tensor_parallel {self.tensor_parallel} and pipeline_parallel {self.pipeline_parallel}"
        if self.backend == "native":
            raise ValueError(f"backend must be auto, triton or reference with {asked}, not native")
        if kind == "mps" or colon:
            raise ValueError(
                f"device must be auto, cpu or cuda with {asked}, not {self.device}: that is a single one"
            )
        if not isinstance(self.model, (str, Path)):
            raise ValueError(f"model must be the path of a file or folder with {asked}")

    @property
    def ranks(self) -> int:
        """Processes that compute together; 1: the engine's own alone."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def sequences(self) -> int:
        """Conversations in the batch."""
        return min(64, self.max_batch_tokens) if self.max_sequences is None else self.max_sequences

    @property
    def cache_format(self) -> str:
        """How keys and values are kept."""
        return "float16" if self.kv_dtype == "auto" else self.kv_dtype

    @property
    def sizes_cache(self) -> bool:
        """Whether the size of the KV cache is asked for; else it follows the memory."""
        return self.kv_blocks is not None or self.kv_memory is not None

    @property
    def draft_source(self) -> str | Path | ModelSource | None:
        """The draft model that was asked for, if one was."""
        return None if self.draft_model in (None, *DRAFT_WORDS) else self.draft_model

    @property
    def draft_window(self) -> int | None:
        """Guesses a step for each conversation; None: their number adapts."""
        return None if self.draft_tokens == "auto" else self.draft_tokens

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """A config from a parsed file; an unknown key is an error that names the nearest known one."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                import difflib  # only mistakes need it

                near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
                raise ValueError(f"unknown engine option {key!r}; did you mean {near!r}?")
        if "model" not in values:
            raise ValueError("the engine option 'model' is missing: it must be set")
        return cls(**values)
