"""What the kernel keeps of its own for memory that is mapped."""

import pytest

from tandem.memory.scratch import page_table_bytes
from tandem.spec.units import GIB, MIB

PAGE = 4096


@pytest.mark.parametrize(
    ("mapped_bytes", "tables"),
    [
        (0, 0),
        (1, 0),  # one page, whose entry lies among others
        (2 * MIB, 1),  # 512 entries
        (2 * MIB + 1, 2 + 1),
        (GIB, 512 + 1),
        (GIB + 1, 513 + 2 + 1),
    ],
)
def test_a_table_s_page_holds_512_entries_and_tables_have_tables(
    mapped_bytes: int, tables: int
) -> None:
    assert page_table_bytes(mapped_bytes) == tables * PAGE
