from __future__ import annotations

from pathlib import Path

import pytest

from tiny_vocabulary import write_tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer that opens at once: a token a byte, 256 `<|im_start|>`, 257 `<|im_end|>`."""
    return write_tiny_tokenizer(tmp_path_factory.mktemp("tiny"))
