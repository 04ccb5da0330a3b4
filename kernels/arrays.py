"""Arrays by the type of their values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int32 = NDArray[np.int32]
UInt32 = NDArray[np.uint32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Float32 = NDArray[np.float32]
