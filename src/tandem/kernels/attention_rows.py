"""Some of the rows of a tier's attention."""

from dataclasses import replace

from tandem.plan.binding import TierAttention


def rows_of(attention: TierAttention, first: int, last: int) -> TierAttention:
    """Rows `first` to `last` (exclusive) of a tier's attention whose queries are selected already.

    Raises:
        ValueError: its tokens are still to be selected.
    """
    if attention.token_index is not None:
        raise ValueError("select the tokens before dividing rows")
    if first == 0 and last == len(attention.block_table):
        return attention
    starts = attention.query_start[first : last + 1]
    index = attention.block_index
    return replace(
        attention,
        query_start=starts - starts[0],
        num_decode=min(max(attention.num_decode - first, 0), last - first),
        positions=attention.positions[starts[0] : starts[-1]],
        block_table=attention.block_table[first:last],
        block_index=None if index is None else index[first:last],
    )
