"""Commands that end within a second or so, whose memory is freed by that."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is looked for meanwhile. A plan keeps nearly all that it makes, tens of megabytes,
    which collections would go through again and again, for 3 to 10% of its time, once more as soon
    as there are any again, and when the process ends: what there is by then is taken for old, and
    left out of that.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.unfreeze()  # into the oldest generation: the next collection is one of new objects
            gc.enable()
            atexit.register(gc.freeze)
