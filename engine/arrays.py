"""Numbers in whatever form a caller has them: lists, arrays, torch tensors. Never imports torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(value: Any) -> NDArray[Any]:
    """The values as an array; those of a tensor, of any device and dtype, as float32."""
    return np.asarray(value.detach().float().cpu().numpy() if _is_tensor(value) else value)


def like(value: Any, result: NDArray[Any]) -> Any:
    """The result as a tensor on the device of `value`, if that is one; else as it is."""
    return sys.modules["torch"].from_numpy(result).to(value.device) if _is_tensor(value) else result
