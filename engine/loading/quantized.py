"""Folders of Hugging Face that are quantized: what config.json says of it, and their tensors as matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .bitsandbytes import check_bitsandbytes, join_4bit, join_int8
from .compressed import join_compressed, read_compressed
from .fields import Fields, shown
from .mxfp4 import METHOD as MXFP4
from .mxfp4 import join_mxfp4
from .packed_words import join_words, read_awq, read_gptq
from .saved import METHOD, check_saved, join_saved
from .stored import StoredTensor

_ADVICE = "use the model's unquantized files, a GGUF file, or GPTQ, AWQ, compressed-tensors or bitsandbytes"


def join_quantized(config: Fields, tensors: Mapping[str, StoredTensor]) -> Mapping[str, Any]:
    """A folder's tensors, the quantized ones among them as the matrices that they stand for.

    Raises EngineError(model_invalid): a method that can't be read, by name; tensors that don't fit it.
    """
    mlx = config.mapping("quantization")
    if mlx is not None and mlx.has("bits"):
        config.fail("quantization", f"of MLX is not supported: {_ADVICE}")
    quantization = config.mapping("quantization_config") or config.mapping("compression_config")
    if quantization is None:
        return tensors
    method = quantization.string("quant_method", default="")
    path = config.path.parent
    if method == "gptq":
        return join_words(path, read_gptq(quantization), tensors)
    if method == "awq":
        return join_words(path, read_awq(quantization), tensors)
    if method == "compressed-tensors":
        return join_compressed(path, read_compressed(quantization), tensors)
    if method == MXFP4:
        return join_mxfp4(path, tensors)
    if method == METHOD:
        check_saved(quantization)
        return join_saved(path, tensors)
    if method != "bitsandbytes":
        quantization.fail("quant_method", f"{shown(method)} is not supported: {_ADVICE}")
    return (join_4bit if check_bitsandbytes(quantization) else join_int8)(path, tensors)
