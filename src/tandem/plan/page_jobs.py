"""What a disk that keeps idle KV blocks is asked to do, and what it reports.

Jobs belong to no step: they go to threads of their own, and their ends are polled beside the
executor's events. A block is all layers' pages of so many tokens.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PageWrite:
    """Keep a block's content in a slot of the disk.

    The block's content is first copied, while the block may be given away. Who gives it away sets
    `void` before anything is submitted that writes the block; who copies looks at it afterwards. So
    nothing is held for the length of a write, and a torn copy never reaches the disk.

    Attributes:
        block: of the lowest tier. digest: what its content is found by.
        slot: where it goes; whatever was there is lost.
        age: writes are numbered upwards; of two slots with one digest the later one counts.
        void: the block's content is no longer the digest's, or may not be soon.
    """

    block: int
    digest: bytes
    slot: int
    age: int
    void: bool = False


@dataclass(frozen=True, slots=True)
class PageRead:
    """Bring a slot's content to a block that nobody reads or writes meanwhile.

    Attributes:
        checksum: of the content, as it was written.
    """

    slot: int
    digest: bytes
    checksum: int
    block: int


PageJob = PageWrite | PageRead


@dataclass(frozen=True, slots=True)
class PageJobDone:
    """A job's end.

    Attributes:
        ok: False of a read: what came is not what was written. False of a write: the slot holds
            nothing.
        checksum: of what was written.
        time_s: that it took, waits for other jobs left out.
        full: of a write: the disk takes no more, ever.
    """

    job: PageJob
    ok: bool
    checksum: int = 0
    time_s: float = 0.0
    full: bool = False
