"""Parts of matrices: what one of several devices holds of a matrix that they share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .formats import BLOCKS, FORMATS, GROUP
from .stored import canonical
from .weights import Kept, Packed, Plain, Stored, Weight, dequantize


def cut(weight: Weight, rows: range, columns: range | None = None) -> Weight:
    """These rows and columns (None: all of them) of a matrix, or these values of a vector; mostly a view.

    A packed matrix stays packed where the columns begin and end at borders of its groups; elsewhere the part
    is the float32 values that it stands for. ValueError as `stored.canonical`.
    """
    if isinstance(weight, Plain):
        lines = weight.values[rows.start : rows.stop]
        return replace(weight, values=lines if columns is None else lines[:, columns.start : columns.stop])
    whole = columns is None or columns == range(weight.shape[1])
    if isinstance(weight, Stored):
        lines = weight.data[rows.start : rows.stop]
        weight = replace(weight, shape=(len(rows), weight.shape[1]), data=lines)
        if whole or columns is None:
            return weight
        block = BLOCKS[weight.type]
        if columns.start % block.values == 0 and columns.stop % block.values == 0:
            first, last = (n // block.values * block.nbytes for n in (columns.start, columns.stop))
            return replace(weight, shape=(len(rows), len(columns)), data=weight.data[:, first:last])
        return cut(canonical(weight), range(len(rows)), columns)
    part = _rows(weight, rows)
    return part if whole or columns is None else _columns(part, columns)


def _rows(packed: Packed, rows: range) -> Packed:
    part, kept = packed.part(rows.start, rows.stop), packed.kept
    if kept is None:
        return part
    inside = (kept.rows >= rows.start) & (kept.rows < rows.stop)
    return replace(part, kept=Kept(kept.rows[inside] - rows.start, kept.values[inside]))


def _columns(packed: Packed, columns: range) -> Weight:
    group = FORMATS[packed.format].group
    border, end = max(group, GROUP), packed.shape[1]
    if columns.start % border or (columns.stop % border and columns.stop != end):
        return Plain(np.ascontiguousarray(dequantize(packed)[:, columns.start : columns.stop]), "f32")
    codes = slice(columns.start // GROUP, -(-columns.stop // GROUP))
    scales = slice(columns.start // group, -(-columns.stop // group))
    kept = packed.kept
    return replace(
        packed,
        shape=(packed.shape[0], len(columns)),
        codes=packed.codes[:, codes],
        scales=packed.scales[:, scales],
        minima=None if packed.minima is None else packed.minima[:, scales],
        kept=None if kept is None else Kept(kept.rows, kept.values[:, columns.start : columns.stop]),
    )
