"""Memory that layers on disk go through, and the pieces in which they are read."""

BLOCK_BYTES = 4096
"""Direct reads begin and end at multiples of it, in the file and in memory."""
SLOTS = 2
"""Layers in memory at once: one is used while the next one comes."""
THREADS = 4
"""That read at the same time from a disk, a piece each."""
MOST_DISKS = 4
_PIECE_BYTES = 1 << 20


def slots_in_use(layers: int) -> int:
    """Slots whose layers, of so many on disk, have been read and not yet been let go."""
    return min(SLOTS, layers)


def piece_bytes(disks: int) -> int:
    """Of a read, in whole blocks, where so many disks are read from: as much less as there are more
    threads, so that these take no more memory than those of one disk.
    """
    ends = 2 * BLOCK_BYTES
    return ((_PIECE_BYTES + ends) // disks - ends) // BLOCK_BYTES * BLOCK_BYTES


def slot_bytes(layer_bytes: int) -> int:
    """One slot, in whole blocks; its layer may begin anywhere in the first one."""
    return -(-(layer_bytes + BLOCK_BYTES) // BLOCK_BYTES) * BLOCK_BYTES


def direct_slots_bytes(layer_bytes: int) -> int:
    """All slots on a GPU that disks are read into: no more than they are."""
    return SLOTS * slot_bytes(layer_bytes)


def slots_bytes(layer_bytes: int) -> int:
    """All slots, and what the threads hold beside them."""
    return SLOTS * slot_bytes(layer_bytes) + THREADS * (_PIECE_BYTES + 2 * BLOCK_BYTES)
