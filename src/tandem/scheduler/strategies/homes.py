"""In which tier rows are at home, where it matters how many are in each."""

import numpy as np
from numpy.typing import NDArray

from tandem.scheduler.rows import UNLIMITED, RowState
from tandem.scheduler.view import SchedulerView
from tandem.spec.tier import TIERS, Tier


def is_planned_whole(view: SchedulerView, row: int) -> bool:
    """Whether a row lies in one tier to its end, since the numbers of rows in both are planned.

    One more on the host would make sweeps wait for more attention there than is planned. One in a
    cohort that has blocks on the device, too, keeps them for as long as its tokens take there. What
    its tier could not hold to its end alone has to go on in the other one.
    """
    if not view.config.max_device_seqs:
        return False
    rows, total = view.rows, view.kv.total()
    longest = -(-(int(rows.limit[row]) - 1) // view.config.block_size)
    if rows.device_limit[row] == UNLIMITED:
        return longest <= total.device
    return rows.device_limit[row] == 0 and longest <= total.host


def on_the_host(view: SchedulerView) -> NDArray[np.bool_]:
    """By row, whether it began on the host, or goes on there, or will once its prompt is read; also
    if it went on on the device.
    """
    rows = view.rows
    bound = (rows.device_limit == 0) | rows.leaves
    began = rows.block_tiers[:, 0] == TIERS.index(Tier.HOST)
    # asked several times a step: two comparisons take a ninth of what np.isin does
    at_work = (rows.state == int(RowState.RUNNING)) | (rows.state == int(RowState.DRAINING))
    began &= (rows.num_blocks > 0) & at_work
    return (bound & (rows.state != int(RowState.FREE))) | began
