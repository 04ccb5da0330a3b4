"""Kernels run in Triton's interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """One thread of torch, as teams stall on a busy machine; numpy's remarks about NaN are expected."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(before)
