"""Garbage is not looked for while a command ends soon, and is afterwards, however it ended."""

import gc

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
