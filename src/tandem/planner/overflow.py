"""Who comes one by one, and finds all places taken."""


def overflow_share(places: int, offered: float) -> float:
    """Of those that come independently, the share that finds every place taken, and goes elsewhere.

    Erlang's loss formula (B), by its recurrence; it holds whatever the times for which places are
    held are like, of which nothing but the mean counts.

    Args:
        offered: who comes in the mean time for which a place is held.
    """
    share = 1.0
    for place in range(1, places + 1):
        share = offered * share / (place + offered * share)
    return share
