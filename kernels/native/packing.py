"""Quantizing by the library: on the thread team, with the bits of `kernels.quantize`."""

from __future__ import annotations

from ctypes import byref

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float32
from ..machine import usable_cpus
from ..quantize import NumpyPacker, row_pieces
from ..weights import Packed, Plain
from . import available
from .library import FORMAT_NUMBERS, Message, Quantizing, addressof, kernels, load


class NativePacker:
    """Packs pieces of some 4 million values, large enough to keep the team busy. Needs the library.

    threads: how many take part; as many as this process may use, unless it is said.
    """

    pieces = 32

    def __init__(self, threads: int | None = None, isa: str = "auto") -> None:
        """ValueError: the machine does not offer these instructions."""
        address = kernels(isa)
        if address is None:
            raise ValueError(f"this machine does not offer the instructions {isa!r}")
        self._kernels = address
        self._threads = threads or usable_cpus()
        self._message = Message()

    def pack(self, piece: Plain, start: int, out: Packed) -> tuple[Float32, NDArray[np.bool_]]:
        """See `quantize.Packer.pack`."""
        rows, columns = out.shape
        values = piece.values if piece.values.strides[1] == piece.values.itemsize else piece.values.copy()
        arrays = [array for array in (out.codes, out.scales, out.minima) if array is not None]
        assert all(array.flags.c_contiguous for array in arrays), "packed groups lie one behind the other"
        peaks, coarse = np.empty(rows, np.float32), np.empty(rows, np.bool_)
        matrix = Quantizing(
            *(FORMAT_NUMBERS[piece.format], FORMAT_NUMBERS[out.format], rows, columns),
            *(addressof(values), values.strides[0], addressof(out.codes), addressof(out.scales)),
            *(None if out.minima is None else addressof(out.minima), addressof(peaks), addressof(coarse)),
        )
        arguments = self._kernels, self._threads, byref(matrix)
        self._message.call("the weights can't be quantized", load().native_quantize, *arguments)
        if not np.isfinite(peaks).all():
            self._refuse(piece, start, out, int(np.argmin(np.isfinite(peaks))))
        return peaks, coarse

    def _refuse(self, piece: Plain, start: int, out: Packed, bad: int) -> None:
        """Let numpy say what is wrong: it looks at a piece of its own size."""
        for here in row_pieces(*out.shape):
            if here.start <= bad < here.stop:
                part = Plain(piece.values[here], piece.format)
                NumpyPacker().pack(part, start + here.start, out.part(here.start, here.stop))
        raise AssertionError("numpy packs what the library does not")


def fastest_packer(threads: int | None = None) -> NativePacker | NumpyPacker:
    """The library's where there is one."""
    return NativePacker(threads) if available() else NumpyPacker()
