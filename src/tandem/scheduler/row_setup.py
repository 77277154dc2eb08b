"""Fill a row's columns from its sequence."""

from tandem.scheduler.rows import MAX_STOP_IDS, RowTable
from tandem.scheduler.sequence import Sequence


def set_up_row(rows: RowTable, row: int, sequence: Sequence, device_limit: int) -> None:
    """Copy what every step needs to know of a sequence into the columns."""
    params = sequence.request.sampling
    rows.known[row] = len(sequence.tokens)
    rows.prompt[row] = sequence.num_prompt
    rows.limit[row] = sequence.limit
    rows.min_total[row] = sequence.num_prompt + params.min_tokens
    rows.device_limit[row] = device_limit
    priority, arrival = sequence.rank
    rows.order[row] = (priority << 40) + arrival
    rows.late[row] = params.needs_history
    rows.seed[row] = sequence.seed
    rows.temperature[row] = params.temperature
    rows.top_p[row] = params.top_p
    rows.min_p[row] = params.min_p
    rows.top_k[row] = max(0, params.top_k)
    rows.logprobs[row] = -1 if params.logprobs is None else params.logprobs
    rows.special[row] = bool(params.needs_history or params.logit_bias or params.min_tokens)
    rows.stop_ids[:, row] = -1
    rows.many_stops[row] = len(sequence.stop_ids) > MAX_STOP_IDS
    for index, token in enumerate(sorted(sequence.stop_ids)[:MAX_STOP_IDS]):
        rows.stop_ids[index, row] = token
