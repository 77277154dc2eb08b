"""In which tier waiting requests may start, and who of them had better wait for the device."""

from collections.abc import Callable, Sized
from dataclasses import dataclass, field

import numpy as np

from tandem.scheduler.kept import Kept
from tandem.scheduler.proposal import Admission
from tandem.scheduler.rows import UNLIMITED, RowState
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.strategies.homes import on_the_host
from tandem.scheduler.view import SchedulerView

_ON_HOST = 0  # leading blocks on the device of a request that lies on the host


@dataclass
class TierRules:
    """Over one view, and what is being admitted in a step that is being filled.

    Args:
        uses_host: KV may go to the host tier.
        admissions, fetches: the step's, to which the filler adds.
    """

    view: SchedulerView
    uses_host: bool
    admissions: list[Admission]
    fetches: Sized
    _counted: int = field(init=False, default=0)
    _coming: list[int] = field(init=False, default_factory=lambda: [0, 0])  # elsewhere, on the host

    def may_go_to_host(self, sequence: Sequence, limit: int) -> bool:
        """Whether a request that would lie on the device may lie on the host instead, whole: also
        one that the device could never hold whole, if the host can; it would wait for its share of
        the device, and all behind it likewise, while the host has room.
        """
        config = self.view.config
        if not (self.uses_host and config.max_host_seqs > 0 and config.kv_placement == "auto"):
            return False
        longest = -(-(sequence.limit - 1) // config.block_size)
        if limit != UNLIMITED and longest > self.view.kv.total().host:
            return False
        return self.count(on_host=True) < config.max_host_seqs

    def is_whole_on_host(self, sequence: Sequence, limit: int) -> bool:
        """Whether a request that the device could never hold whole had better not lie in both
        tiers: where the numbers of rows in each are planned, its share of the device would be kept
        from those that lie there, and from prompts that pass, to its end.
        """
        if limit in (UNLIMITED, _ON_HOST) or not self.view.config.max_device_seqs:
            return False
        return self.may_go_to_host(sequence, limit) and not self.waits_for_device(sequence)

    def may_go_to_device(self, limit: int) -> bool:
        """Whether a whole request may lie there, with others on the host beside it."""
        most = self.view.config.max_device_seqs
        bounded = self.uses_host and most > 0 and limit == UNLIMITED
        if limit == _ON_HOST:
            return False
        return not bounded or self.count(on_host=False) < most

    @property
    def planned_apart(self) -> bool:
        """Whether the numbers in both tiers are planned, and those on the host take nothing of the
        device: then they may start while somebody waits for room there.
        """
        config = self.view.config
        may_lie_there = self.uses_host and config.kv_placement != "device"
        return may_lie_there and config.max_device_seqs > 0 and not config.prompts_on_device

    def goes_back(self, sequence: Sequence, limit: int, reserved: int) -> bool:
        """Whether a request that was preempted on the device waits until there is room again, where
        the numbers in both tiers are planned: on the host it would be one of those planned there
        that is older than they are in the mean, and sweeps would wait for its attention.

        Those behind it may start on the host meanwhile, where they take nothing that it waits for;
        if they leave room there, it may be used (`StepFiller.fill`). Where prompts of the host are
        read on the device they would take something, so that it waits for neither.

        It pauses for no longer than those ahead of it on the device, at most, take to their ends:
        nobody behind it takes what these leave, and for nobody it does not wait.

        Args:
            reserved: blocks of the device that are kept for others' growth.
        """
        config, total = self.view.config, self.view.kv.total()
        if not (sequence.began_here and self.planned_apart and limit == UNLIMITED):
            return False
        held = -(-len(sequence.tokens) // config.block_size) + reserved
        return held <= total.device and self.count(on_host=False) > 0

    def waits_for_device(self, sequence: Sequence) -> bool:
        """Whether a request had better wait for those who lie there; for nobody, none waits."""
        waits = self.view.waits_for_device
        return waits is not None and self.count(on_host=False) > 0 and waits(sequence)

    @property
    def is_left_out(self) -> Callable[[Sequence], bool] | None:
        """Of whom nobody need be tried who waits behind, once they would start on the host: where
        nothing else follows from who is admitted than that, proposals are the same as if all that
        is left out again had been in them. None: all are to be tried.
        """
        view = self.view
        if view.fetching is not None or view.config.prompts_on_device:
            return None
        # those would go on on the host if everybody who waits had found room there
        return None if view.rows.count(RowState.SWAPPED) else view.is_left_out

    def count(self, *, on_host: bool) -> int:
        """Requests that lie on the host, or others, those included that are being admitted."""
        while self._counted < len(self.admissions):  # to which the filler only adds
            each = self.admissions[self._counted]
            self._coming[each.leaves or each.device_limit == _ON_HOST] += 1
            self._counted += 1
        there = self._on_host if on_host else self._elsewhere + len(self.fetches)
        return there + self._coming[on_host]

    @Kept
    def _on_host(self) -> int:
        """Of the view's rows."""
        return int(np.count_nonzero(on_the_host(self.view)))

    @Kept
    def _elsewhere(self) -> int:
        """Likewise."""
        return self.view.rows.max_rows - self.view.rows.num_free - self._on_host
