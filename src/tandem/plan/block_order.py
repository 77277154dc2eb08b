"""In which order a job's batches go through layers and tokens (ADR 0082)."""

from typing import Literal

from tandem.spec.errors import ConfigError

BlockOrder = Literal["rows", "columns"]
"""Rows: a batch goes through all layers by itself, token after token to its end, and weights that
come, come for it alone; the next one follows where places become free. Columns: several batches go
through a layer one after the other, so that its weights come once for all of them."""
ORDERS: tuple[BlockOrder, ...] = ("rows", "columns")


def parse_orders(text: str) -> tuple[BlockOrder, ...]:
    """Those that an option allows: one by its name, or `auto`, whichever is faster.

    Raises:
        ConfigError: neither.
    """
    if text == "auto":
        return ORDERS
    for order in ORDERS:
        if text == order:
            return (order,)
    raise ConfigError(
        f"unknown order '{text}'; use one of: auto, {', '.join(ORDERS)}", param="order"
    )


def order_of(batches: int) -> BlockOrder:
    """Of blocks of so many batches."""
    return "rows" if batches == 1 else "columns"
