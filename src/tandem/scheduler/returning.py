"""Rows that come back to the device in two ways at once: their first tokens are computed again from
their ids while the others' KV is copied (KVPR's equation 12 for a whole request).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.memory.prefix_cache import CachedBlock
from tandem.plan.binding import IntArray
from tandem.scheduler.kv_manager import KVManager
from tandem.scheduler.rows import UNLIMITED, RowState, RowTable
from tandem.spec.tier import Tier


@dataclass(slots=True)
class Return:
    """A row under way.

    Attributes:
        computed: tokens that it had, and has again once it is back.
        source: int32; all its blocks on the host, which stay its own until then.
        copied: the others' KV has arrived.
    """

    computed: int
    source: IntArray
    copied: bool = False


class Returning:
    """Keeps what such rows have on the host, and sees when they are back.

    Meanwhile a row's blocks in the row table are those on the device that it computes, and from
    their arrival on the copied ones, too, which no step names before all is there.

    Attributes:
        num_begun: returns so far.
    """

    def __init__(self, rows: RowTable, kv: KVManager) -> None:
        self._rows, self._kv = rows, kv
        self._device, self._host = kv.pools[Tier.DEVICE], kv.pools[Tier.HOST]
        self._returns: dict[int, Return] = {}
        self.num_begun = 0

    def __contains__(self, row: int) -> bool:
        return row in self._returns

    def on_host(self) -> Iterator[IntArray]:
        """Blocks of the host that rows hold beside those in the row table."""
        return (each.source for each in self._returns.values())

    def begin(self, row: int, ready: list[CachedBlock], head: int) -> tuple[IntArray, IntArray]:
        """Give a row that lies on the host `head` blocks of the device to be computed again, the
        first of them shared ones that are `ready`, and reserve those that the rest is copied to.

        Returns: (source blocks, target blocks) of the copy, equally long.
        """
        r, pool = self._rows, self._device
        source, shared = r.blocks(row, Tier.HOST), [entry.block for entry in ready]
        pool.share(shared)  # first: else they might be evicted
        again = pool.allocate(head - len(ready))
        target = pool.begin_transfer(len(source) - head)
        r.drop_blocks(row)
        r.extend_blocks(row, Tier.DEVICE, shared)
        r.extend_blocks(row, Tier.DEVICE, again)
        self._kv.note_arriving(row, source[head:])
        self._returns[row] = Return(int(r.computed[row]), source)
        self.num_begun += 1
        r.enter(row, RowState.RETURNING)
        r.version += 1
        size = self._kv.block_size
        r.submitted[row] = r.computed[row] = len(ready) * size
        r.upto[row] = head * size
        r.arriving[row] = len(target)
        r.on_device[row] = False  # tokens in the middle come from the host, one by one, too
        return source[head:], target

    def copied(self, row: int, target: IntArray) -> None:
        """The copy has arrived."""
        r = self._rows
        self._returns[row].copied = True
        self._kv.arrived(row)
        self._device.complete_transfer(target)
        r.extend_blocks(row, Tier.DEVICE, target)
        r.arriving[row] = 0
        r.version += 1
        self.settle()

    def settle(self) -> None:
        """Rows of which both parts are there go on."""
        r = self._rows
        back = [
            row
            for row, each in self._returns.items()
            if each.copied
            and r.computed[row] == r.upto[row]
            and r.state[row] == int(RowState.RETURNING)
        ]
        for row in back:
            each = self._returns.pop(row)
            r.submitted[row] = r.computed[row] = each.computed
            r.upto[row] = UNLIMITED
            self._kv.publish_copies(row, Tier.DEVICE, each.source, r.blocks(row, Tier.DEVICE))
            self._host.release(each.source, None)
            r.enter(row, RowState.RUNNING)
            r.version += 1

    def back_out(self, row: int) -> None:
        """A drained row is on the host again, as it was; its copy has been cancelled, and events
        that still name it are void.
        """
        r = self._rows
        each = self._returns.pop(row)
        self._device.release(r.blocks(row, Tier.DEVICE), None)
        r.drop_blocks(row)
        r.extend_blocks(row, Tier.HOST, each.source)
        r.submitted[row] = r.computed[row] = each.computed
        r.upto[row], r.arriving[row] = UNLIMITED, 0
        r.epoch[row] += 1
        r.version += 1
        r.enter(row, RowState.SWAPPED)

    def forget(self, row: int) -> None:
        """The row has died, its copy been cancelled: give its blocks on the host back."""
        each = self._returns.pop(row, None)
        if each is not None:
            last = int(self._rows.last_step[row])
            self._host.release(each.source, last if last >= 0 else None)
