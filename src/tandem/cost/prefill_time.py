"""What reading a prompt adds to the steps that read it."""

from tandem.cost.step_prices import StepPrices, TierWork


def prefill_s(
    prices: StepPrices, first: int, total: int, decodes: int, tokens_per_step: int
) -> float:
    """Seconds for tokens `first` to `total` of a prompt that lies on the accelerator.

    Args:
        decodes: rows that decode in the same steps, whose part of the linear stages is not counted:
            up to where arithmetic takes longer than reading the weights, a prompt is free.
        tokens_per_step: of prompts and decodes together.
    """
    most = max(1, tokens_per_step - decodes)
    beside_s = prices.linear.at(decodes)
    time_s = 0.0
    while first < total:
        tokens = min(most, total - first)
        pairs = tokens * first + tokens * (tokens + 1) / 2
        attention_s = prices.device.seconds(TierWork(tokens, float(first + tokens), pairs))
        time_s += prices.linear.at(tokens + decodes) - beside_s + prices.num_layers * attention_s
        first += tokens
    return time_s
