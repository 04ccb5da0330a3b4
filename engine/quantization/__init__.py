"""Weight formats: quantizing to q8 and q4, and back."""

from kernels.dequantize import dequantize

from .groups import quantize

__all__ = ["dequantize", "quantize"]
