"""Loading and decoding against transformers: tiny random models, reference backend, all in float32."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.models.decoder import decoder
from engine.models.weights import place
from kernels.interface import BackendSettings, CacheShape, Limits
from kernels.reference import ReferenceBackend
from kernels.step import Step

SIZES = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
PARTIAL_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
MODELS = {
    "llama": ("LlamaConfig", {}),
    "llama-mha-tied": ("LlamaConfig", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama-biases": ("LlamaConfig", {"attention_bias": True}),
    "llama-head-dim": ("LlamaConfig", {"head_dim": 32}),
    "llama3-rope": ("LlamaConfig", {"rope_parameters": LLAMA3_ROPE}),
    "llama-linear-rope": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.5}},
    ),
    "mistral-window": ("MistralConfig", {"sliding_window": 5}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-yarn": ("Qwen2Config", {"rope_parameters": YARN_ROPE}),
    "qwen2-some-windows": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 24}),
    "llama-mlp-biases": ("LlamaConfig", {"mlp_bias": True}),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 6, "attn_logit_softcapping": 5.0},
    ),
    "gemma2-no-caps": (
        "Gemma2Config",
        {"head_dim": 16, "attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "num_hidden_layers": 7,
            "sliding_window": 6,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "granite": (
        "GraniteConfig",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.1,
            "residual_multiplier": 0.4,
            "logits_scaling": 0.5,
        },
    ),
    "phi3": ("Phi3Config", {"pad_token_id": 0, "sliding_window": 9}),
    "phi3-partial": (
        "Phi3Config",
        {"pad_token_id": 0, "rope_parameters": {**PARTIAL_ROPE, "partial_rotary_factor": 0.75}},
    ),
    "olmo2": ("Olmo2Config", {}),
    "olmo3": (
        "Olmo3Config",
        {
            "num_hidden_layers": 5,
            "sliding_window": 6,
            "rope_parameters": {
                "full_attention": YARN_ROPE,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 5, "pad_token_id": 0, "eos_token_id": 1}),
    "glm4": (
        "Glm4Config",
        {
            "head_dim": 16,
            "pad_token_id": 0,
            "eos_token_id": [1],
            "rope_parameters": {**PARTIAL_ROPE, "partial_rotary_factor": 0.5},
        },
    ),
}
PROMPTS = (37, 1, 16, 5)
NEW_TOKENS = 4
BLOCK = 16


def make(kind: str, folder: Path) -> torch.nn.Module:
    """A random model with every bias and norm far from its initial value, saved to the folder."""
    name, changes = MODELS[kind]
    torch.manual_seed(sum(map(ord, kind)))
    config = getattr(transformers, name)(**{**SIZES, **changes}, initializer_range=0.15)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            if key.endswith("bias"):
                value.normal_(std=2.0)
            elif "norm" in key:
                value.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    return model


@dataclass
class Session:
    """A placed model; sequence i owns the i-th run of 8 blocks."""

    checkpoint: Checkpoint
    sequences: int = len(PROMPTS)
    width: int = 8

    def __post_init__(self) -> None:
        spec = self.checkpoint.spec
        backend = ReferenceBackend(BackendSettings("cpu", "float32", 1))
        weights = place(spec, self.checkpoint.tensors, backend)
        blocks = self.sequences * self.width
        backend.allocate_cache(
            CacheShape(len(spec.layers), blocks, BLOCK, spec.kv_heads, spec.head_dim, "float32")
        )
        limits = Limits(256, 256, self.sequences, self.width)
        self.program = backend.capture(lambda ops, batch: decoder(ops, spec, weights, batch), limits)
        self.tables = np.arange(blocks, dtype=np.int32).reshape(self.sequences, self.width)

    def step(self, parts: list[tuple[int, int, list[int]]]) -> list[np.ndarray]:
        """Run (sequence, first position, tokens) together; float32 logits of every row, a matrix a part."""
        sequences = np.concatenate([np.full(len(tokens), s, np.int32) for s, _, tokens in parts])
        positions = np.concatenate([np.arange(p, p + len(t), dtype=np.int32) for _, p, t in parts])
        tokens = np.concatenate([np.asarray(t, np.int32) for _, _, t in parts])
        slots = self.tables[sequences, positions // BLOCK] * BLOCK + positions % BLOCK
        step = Step.of(
            tokens=tokens,
            positions=positions,
            slots=slots,
            sequences=sequences,
            block_tables=self.tables,
            sample_rows=np.arange(len(tokens)),
        )
        output = self.program.launch(step, logits=True).result()
        assert output.logits is not None
        logits = np.array(output.logits, np.float32)
        return np.split(logits, np.cumsum([len(t) for _, _, t in parts])[:-1])


def expected_logits(model: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def check_close(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
    worst = float(np.abs(actual - expected).max())
    assert worst < 1e-4, f"{what}: {worst}"


def random_tokens(kind: str) -> list[list[int]]:
    generator = np.random.default_rng(len(kind))
    return [generator.integers(0, SIZES["vocab_size"], n + NEW_TOKENS).tolist() for n in PROMPTS]


def check_against(model: torch.nn.Module, checkpoint: Checkpoint, kind: str) -> None:
    """Prefill and decode, alone and together, equal the library's logits at every position."""
    texts = random_tokens(kind)
    wanted = [expected_logits(model, text) for text in texts]
    assert max(float(np.abs(w).max()) for w in wanted) > 0.5, "logits too small to show a difference"
    alone = Session(checkpoint)
    (prefill,) = alone.step([(0, 0, texts[0][: PROMPTS[0]])])
    check_close(prefill, wanted[0][: PROMPTS[0]], "prefill alone")
    for position in range(PROMPTS[0], len(texts[0])):
        (row,) = alone.step([(0, position, [texts[0][position]])])
        check_close(row[0], wanted[0][position], f"decode alone at {position}")
    together = Session(checkpoint)
    parts = [(s, 0, text[:n]) for s, (text, n) in enumerate(zip(texts, PROMPTS, strict=True))]
    for s, logits in enumerate(together.step(parts)):
        check_close(logits, wanted[s][: PROMPTS[s]], f"prefill of sequence {s} in a batch")
    for i in range(NEW_TOKENS):
        parts = [(s, n + i, [texts[s][n + i]]) for s, n in enumerate(PROMPTS)]
        for s, row in enumerate(together.step(parts)):
            check_close(row[0], wanted[s][PROMPTS[s] + i], f"decode {i} of sequence {s} in a batch")


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_logits_equal_transformers(kind: str, tmp_path: Path) -> None:
    model = make(kind, tmp_path)
    check_against(model, open_checkpoint(tmp_path), kind)


def test_B091_qwen2_biases_change_the_logits(tmp_path: Path) -> None:
    model = make("qwen2", tmp_path)
    assert "attention_bias" not in json.loads((tmp_path / "config.json").read_text())
    tokens = random_tokens("qwen2")[0][: PROMPTS[0]]
    (biased,) = Session(open_checkpoint(tmp_path)).step([(0, 0, tokens)])
    with torch.no_grad():
        for key, value in model.named_parameters():
            if key.endswith("bias"):
                value.zero_()
    assert np.abs(biased - expected_logits(model, tokens)).max() > 0.1


def test_B091_biases_of_a_plain_llama_are_used(tmp_path: Path) -> None:
    model = make("llama-biases", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["attention_bias"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    check_against(model, open_checkpoint(tmp_path), "llama-biases")


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of query or key heads in the order of Llama's GGUF files: halves of a head become pairs."""
    size = len(rows) // heads
    return rows.reshape(heads, 2, size // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


TURNED = ("llama", "granite", "smollm3")
"""Architectures whose GGUF files hold queries and keys in another order than safetensors."""
GGUF_OPTIONS: dict[str, dict[str, float | str]] = {
    "gemma2": {
        "attention.sliding_window": 6,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3": {
        "attention.sliding_window": 6,
        "rope.freq_base_swa": 100.0,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    },
    "granite": {
        "attention.scale": 0.1,
        "embedding_scale": 3.0,
        "residual_scale": 0.4,
        "logit_scale": 0.5,
    },
    "phi3": {"attention.sliding_window": 9},
    "glm4": {"rope.dimension_count": 8},
}


def write_gguf(
    path: Path, model: torch.nn.Module, architecture: str, factors: np.ndarray | None = None
) -> None:
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_key_length(getattr(config, "head_dim", 16))
    for name, number in GGUF_OPTIONS.get(architecture, {}).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(number)]
        add(f"{architecture}.{name}", number)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for key, value in model.state_dict().items():
        values = value.numpy()
        for projection, count in heads.items():
            if architecture in TURNED and projection in key:
                values = interleaved(values, count)
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if not (key == "lm_head.weight" and config.tie_word_embeddings):
            kept = "norm" in key and architecture.startswith("gemma")
            writer.add_tensor(name, np.ascontiguousarray(values) + np.float32(kept))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    "kind",
    [
        *("llama", "llama-mha-tied", "llama-biases", "llama-head-dim", "qwen2", "qwen3"),
        *("gemma2", "gemma3", "granite", "phi3", "olmo2", "smollm3", "glm4"),
    ],
)
def test_B089_gguf_files_equal_transformers(kind: str, tmp_path: Path) -> None:
    """Llama's GGUF rows are interleaved, Qwen's are not: each is read in its own order."""
    model = make(kind, tmp_path)
    architecture = kind.partition("-")[0]
    write_gguf(tmp_path / "m.gguf", model, architecture)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    layout = "interleaved" if architecture in (*TURNED, "glm4") else "half"
    assert checkpoint.spec.ropes[0].layout == layout
    check_against(model, checkpoint, kind)


def test_gguf_frequency_factors_equal_llama3_scaling(tmp_path: Path) -> None:
    from engine.models.rope import frequencies
    from engine.models.spec import RopeSpec

    model = make("llama3-rope", tmp_path)
    scaled = open_checkpoint(tmp_path).spec
    factors = frequencies(RopeSpec(base=scaled.ropes[0].base), scaled.head_dim) / frequencies(
        scaled.ropes[0], scaled.head_dim
    )
    assert factors.min() == 1.0
    assert factors.max() == 8.0
    write_gguf(tmp_path / "m.gguf", model, "llama", factors)
    check_against(model, open_checkpoint(tmp_path / "m.gguf"), "llama3-rope")
