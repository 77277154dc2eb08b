"""Commands that end within a second or so, whose memory is freed by that."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OWN = 1000  # objects at most that an interpreter has frozen by itself when it starts: 375 in 3.12


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is looked for meanwhile. A plan keeps nearly all that it makes, tens of megabytes,
    which collections would go through again and again, for 3 to 10% of its time, once more as soon
    as there are any again, and when the process ends: what there is by then is taken for old, and
    left out of that.

    Where the process has frozen objects of its own, that last part is left out: there is no thawing
    but of all, and every collection would go through them from then on.
    """
    was_enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if frozen <= _OWN:
                gc.freeze()
                gc.unfreeze()  # into the oldest generation: the next collection is of new objects
                atexit.register(gc.freeze)
            gc.enable()
