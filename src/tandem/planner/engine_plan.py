"""What an engine executes of a plan."""

from tandem.memory.growth_reserve import with_growth_reserve
from tandem.plan.interposition import token_sweeps
from tandem.plan.online import USUAL_JOIN_WAIT_S, OnlinePlan
from tandem.planner.candidate import Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.option import Option
from tandem.planner.places import num_places
from tandem.planner.question import Question


def engine_plan(
    question: Question, footprint: Footprint, option: Option, more: int = 0
) -> OnlinePlan:
    """What the engine executes.

    Args:
        more: requests on the accelerator than are counted, as `more_while_young`.
    """
    candidate = option.candidate
    longest = question.lengths.longest_tokens
    places = num_places(question, candidate) + more
    beside = places - candidate.rows - more  # whose prompt is read, in either tier
    held = places * footprint.longest_blocks
    most = with_growth_reserve(places, held)
    device_blocks = min(most, footprint.device_blocks(candidate, more))
    return OnlinePlan(
        strategy=candidate.strategy,
        weights=candidate.placement(question.model),
        embedding="host" if candidate.embedding else "resident",
        cpu_rules=candidate.cpu_rules(question.model, places),
        device_blocks=device_blocks,
        host_blocks=min(held, footprint.host_blocks(candidate)),
        block_size=question.block_size,
        max_model_len=longest,
        max_num_seqs=places,
        max_num_batched_tokens=question.step_of(candidate.step_tokens),
        max_cohorts=candidate.num_cohorts,
        max_cohort_rows=candidate.cohort_rows,
        max_join_wait_s=_join_wait_s(option, question.model.num_layers),
        interposition_budget=candidate.passes,
        kv_placement=candidate.kv_placement,
        max_host_seqs=candidate.max_host_seqs and candidate.max_host_seqs + beside,
        max_device_seqs=candidate.max_device_seqs and candidate.max_device_seqs + beside + more,
        prompts_on_device=candidate.reads_here,
        split_blocks=_split_blocks(candidate, device_blocks),
    )


def _split_blocks(candidate: Candidate, device_blocks: int) -> int:
    """Of each request that lies in both tiers, on the accelerator: as many as there are for all,
    but for the one that each of those that run may need while the last one comes.
    """
    if not candidate.device_share:
        return 0
    return max(1, device_blocks // candidate.rows - 1)


def _join_wait_s(option: Option, num_layers: int) -> float:
    """As long as a sweep takes, for each layer that a cohort leaves behind in one: sweeps were
    timed with all their joins, and a cohort that is refused waits for the sweep after the next.
    """
    candidate = option.candidate
    if not candidate.has_cohorts:
        return USUAL_JOIN_WAIT_S
    visits = 1
    if candidate.passes:
        visits = max(map(len, token_sweeps(num_layers, candidate.passes)))
    return max(USUAL_JOIN_WAIT_S, visits * option.prediction.rates.tpot_s)
