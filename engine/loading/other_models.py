"""Models that nobody can chat with here: what they are made for, or built of, by the names of their kinds."""

from __future__ import annotations

import re

from .fields import Fields, invalid, shown
from .folder import Folder

_JUDGES = "it computes embeddings or judges texts, and writes none"
_KINDS = {
    _JUDGES: (
        r"(.*_)?([a-z]*bert[a-z]*|roberta|electra|mpnet|embedding|embed|bidirec|t5encoder|new|xlm)"
        r"(_v?\d+)?(_.*)?"
    ),
    "it reads a text whole and writes another (an encoder and a decoder)": (
        r"(m|um|long|flan_)?t5(gemma)?|m?bart|pegasus|marian|m2m_100|fsmt|led|nllb.*|prophetnet"
    ),
    "it hears or makes sound, and writes no replies": (
        r"whisper|wav2vec2.*|hubert|wavtokenizer_dec|bark|musicgen|speecht5|seamless.*|moonshine"
        r"|parakeet.*|csm|xtts|vits"
    ),
    "it makes pictures or videos, and writes no text": (
        r"flux.*|sd[13]|sdxl|wan|ltxv|hyvid|lumina2|aura|cosmos|hidream|qwen_image|z_image|pixart"
    ),
    "it looks at pictures, and writes no text": r"clip.*|siglip.*|vit.*|dino.*|sam\d?|detr",
    "it writes by diffusion, all of a reply at once, which is not computed": (
        r"dream|llada.*|diffu.*|rnd1|sdar.*"
    ),
    "it has layers with a state instead of attention, which are not computed": (
        r"(falcon_)?mamba\d?|a?rwkv.*|jamba|falcon_?h1|nemotron_?h.*|lfm2.*|plamo[23]|granite_?hybrid"
        r"|qwen3_?next|qwen3_?5.*|kimi_linear|bamba|zamba\d?|recurrent_?gemma|minimax(_text_01|_m1)?"
    ),
    "its attention is the latent one of DeepSeek (MLA), which is not computed": (
        r"deepseek\d|deepseek_v\d+|kimi_k\d+|minicpm3|glm_?dsa|glm_moe_dsa|glm4_moe_lite|mistral4|longcat.*"
    ),
}
"""What models are, by their architecture in GGUF files or their model_type, with underscores for hyphens."""

_WRITE = ("CausalLM", "ConditionalGeneration", "LMHeadModel")
_JUDGING = re.compile(r"For\w*(Classification|Reward\w*|QuestionAnswering|MaskedLM|Retrieval|Embedding)$")


def what_it_is(name: str) -> str:
    """What a model of this architecture or model_type is, as a sentence; "" where that is not known."""
    plain = re.sub(r"[-.]", "_", name[:60].lower())
    return next((said for said, names in _KINDS.items() if re.fullmatch(names, plain)), "")


def refuse_judges(folder: Folder, config: Fields) -> None:
    """Refuse a folder whose model was trained on from one that writes, to embed or judge texts instead."""
    listed = config.get("architectures")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    if names and not any(name.endswith(_WRITE) for name in names) and _JUDGING.search(names[0][:100]):
        config.fail("architectures", f"{shown(names[0])} is not supported: {_JUDGES}")
    if folder.has("modules.json"):  # of Sentence Transformers
        raise invalid(folder.path, f"is no model to chat with, says its modules.json: {_JUDGES}", colon=False)


def refuse_pooling(model: Fields) -> None:
    """The same for the metadata of a GGUF file; 0 is no pooling."""
    if model.integer("pooling_type", -1, (1 << 32) - 1, default=0) not in (0, -1, (1 << 32) - 1):
        model.fail("pooling_type", f"{shown(model.get('pooling_type'))} is not supported: {_JUDGES}")
