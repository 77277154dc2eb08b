"""When a block's empty places are filled, where weights come for every program."""


def is_due(idle_tokens: float, places: int, free: int, left_tokens: float) -> bool:
    """Whether those that wait enter now.

    Another program over prompts takes at least the time of a pass, so that places stand empty until
    they have lost as many tokens as a pass gives. Where all that run are over before as much is
    lost once more, these are waited for, so that all enter together.

    Args:
        idle_tokens: that empty places have not given since prompts were read last.
        places: of a block, full or empty. free: empty ones.
        left_tokens: to come of the sequence that runs longest.
    """
    return idle_tokens >= places and left_tokens * free > places
