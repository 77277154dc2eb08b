"""Garbage is not looked for while a command ends soon, and is afterwards, however it ended."""

import gc
import subprocess
import sys

import pytest

from tandem.cli.uncollected import uncollected


def test_collections_go_on_afterwards_where_there_were_some() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="a mistake"), uncollected():
        raise ValueError("a mistake")
    assert gc.isenabled()


def test_the_collection_when_the_process_ends_goes_through_nothing_that_was_made() -> None:
    program = """
import atexit, gc
from tandem.cli.uncollected import uncollected
atexit.register(lambda: print(gc.get_freeze_count() > 1000))  # runs last
with uncollected():
    made = [[] for _ in range(1000)]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["True"], done.stderr


def test_the_next_collection_goes_through_nothing_that_was_made() -> None:
    with uncollected():
        made = [[] for _ in range(10_000)]
    young = gc.get_objects(generation=0)
    assert not any(known is made[0] for known in young)
    assert gc.get_freeze_count() == 0
    assert len(made) == 10_000
