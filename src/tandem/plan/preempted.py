"""What becomes of preempted KV where nobody has said."""

from tandem.plan.online import OnlinePlan
from tandem.spec.config import PreemptionMode


def preemption_mode(
    plan: OnlinePlan, asked: PreemptionMode | None, *, converts: bool
) -> PreemptionMode:
    """What was asked for; else as `copied_unasked`.

    Args:
        converts: the host keeps KV as another element type.
    """
    if asked is not None:
        return asked
    copied = copied_unasked(
        plan.max_device_seqs, prompts_on_device=plan.prompts_on_device, converts=converts
    )
    return "swap" if copied else "recompute"


def copied_unasked(max_device_seqs: int, *, prompts_on_device: bool, converts: bool) -> bool:
    """Whether it is copied to the host and back: where numbers of requests in both tiers are
    planned, and those on the host take nothing of the device. Who is preempted there waits for room
    there, while the link has little to do and the host has room beside its own. To compute its
    tokens again would take a step that is several times as long, of all. Not where they would be
    rounded on the way.

    Args:
        max_device_seqs, prompts_on_device: as in `OnlinePlan`.
    """
    return max_device_seqs > 0 and not prompts_on_device and not converts
