"""A probe while something else uses what it shares."""

import threading
from collections.abc import Callable


def beside(probe: Callable[[], float], load: Callable[[], object]) -> Callable[[], float]:
    """`probe`, with `load` going on in another thread from before its start to after its end."""

    def measure() -> float:
        stopped, begun = threading.Event(), threading.Event()

        def repeat() -> None:
            while not stopped.is_set():
                load()
                begun.set()

        thread = threading.Thread(target=repeat, name="tandem-bench-load")
        thread.start()
        begun.wait()
        try:
            return probe()
        finally:
            stopped.set()
            thread.join()

    return measure
