"""A tokenizer of 258 tokens that opens at once."""

from __future__ import annotations

import json
from pathlib import Path

ALPHABET = [
    chr(n) for n in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100), *range(0x100, 0x144))
]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tiny_tokenizer(folder: Path) -> Path:
    """Into a folder: a token a byte, 256 `<|im_start|>`, 257 `<|im_end|>`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pipeline = Tokenizer(models.BPE({character: i for i, character in enumerate(ALPHABET)}, []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    pipeline.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder
