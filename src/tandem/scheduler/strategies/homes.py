"""In which tier rows are at home, where it matters how many are in each."""

import numpy as np
from numpy.typing import NDArray

from tandem.scheduler.rows import UNLIMITED, RowState
from tandem.scheduler.view import SchedulerView
from tandem.spec.tier import TIERS, Tier

# numpy looks for arrays in members of enumerations, and converts numbers of Python, at each use
_IS_RUNNING, _IS_DRAINING, _IS_FREE = (
    np.array(int(state), dtype=np.int8)
    for state in (RowState.RUNNING, RowState.DRAINING, RowState.FREE)
)
_HOST = np.array(TIERS.index(Tier.HOST), dtype=np.int8)
_NONE = np.array(0, dtype=np.int32)


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
    bound = (rows.device_limit == _NONE) | rows.leaves
    began = rows.block_tiers[:, 0] == _HOST
    # asked several times a step: two comparisons take a ninth of what np.isin does
    at_work = (rows.state == _IS_RUNNING) | (rows.state == _IS_DRAINING)
    began &= (rows.num_blocks > _NONE) & at_work
    return (bound & (rows.state != _IS_FREE)) | began
