"""Where a row's blocks lie in a pool's pages."""

import numpy as np

from tandem.kernels.pages import PageShape
from tandem.plan.binding import IntArray, LongArray


def gather_index(ids: IntArray, shape: PageShape) -> LongArray:
    """Block ids [rows, blocks] to places of their heads' keys, values: [2, rows, heads, blocks]."""
    part = np.arange(2)[:, None, None, None]
    head = np.arange(shape.kv_heads)[:, None]
    return (ids.astype(np.int64)[:, None, :] * 2 + part) * shape.kv_heads + head
