"""Torch devices by the names of the settings, and their free memory."""

from __future__ import annotations

import torch

from ..machine import free_memory


def find_device(name: str) -> torch.device:
    """The torch device of a setting; ValueError says what is missing."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not cuda:
        raise ValueError(f"device {name!r}: torch {torch.__version__} finds no CUDA GPU; use device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r}: only {torch.cuda.device_count()} CUDA GPUs, numbered from 0")
    if device.type == "mps" and not mps:
        raise ValueError(f"device {name!r}: torch {torch.__version__} finds no Apple GPU; use device cpu")
    return device


def free_bytes(device: torch.device) -> int:
    """Bytes that can be taken on a device now: a GPU's own memory, else main memory."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return free_memory()
