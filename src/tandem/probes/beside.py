"""A probe while something else uses what it shares."""

import threading
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def beside(probe: Callable[[], _Found], load: Callable[[], object]) -> Callable[[], _Found]:
    """`probe`, with `load` going on in another thread from before its start to after its end.

    What `load` raises is raised once the probe has ended.
    """

    def measure() -> _Found:
        stopped, begun = threading.Event(), threading.Event()
        errors: list[Exception] = []

        def repeat() -> None:
            try:
                while not stopped.is_set():
                    load()
                    begun.set()
            except Exception as error:  # noqa: BLE001 - raised by the thread that measures
                errors.append(error)
                begun.set()

        thread = threading.Thread(target=repeat, name="tandem-probe-load")
        thread.start()
        begun.wait()
        try:
            found = probe()
        finally:
            stopped.set()
            thread.join()
        if errors:
            raise errors[0]
        return found

    return measure
