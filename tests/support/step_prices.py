"""Price lists for tests: of round numbers, and drawn at random."""

import random

from hypothesis import strategies as st

from tandem.cost.page_price import PagePrice
from tandem.cost.staircase import Staircase
from tandem.cost.step_prices import AttentionPrice, StepPrices


def rising(first_s: float, each_s: float = 0.0) -> Staircase:
    """`first_s` for one row, and so much more for each further one."""
    return Staircase((1, 1001), (first_s, first_s + 1000 * each_s))


def round_prices(
    num_layers: int = 10,
    *,
    layer_s: float = 1.0,
    token_s: float = 0.0,
    device_key_s: float = 0.0,
    host_key_s: float = 0.0,
    link_s: float = 0.0,
    block_s: float = 0.0,
    wait_s: float = 0.0,
) -> StepPrices:
    """A layer's stages and single keys cost; heads, merges and launches do not."""
    return StepPrices(
        num_layers=num_layers,
        windows=((0, 1.0),),
        linear=rising(num_layers * layer_s, num_layers * token_s),
        layer=rising(layer_s, token_s),
        head=rising(0.0),
        device=AttentionPrice(0.0, device_key_s, 0.0, 0.0),
        host=AttentionPrice(0.0, host_key_s, 0.0, 0.0),
        link=rising(link_s),
        merge=rising(0.0),
        pages=PagePrice(0.0, block_s, 0.0, block_s),
        launch_s=0.0,
        max_join_wait_s=wait_s,
    )


def slow_link(num_layers: int) -> StepPrices:
    """Of a machine whose copies take so long that much of a request is sooner computed again."""
    return round_prices(num_layers, layer_s=0.0, token_s=1.0, block_s=10.0)


_SECONDS = (0.0, 1e-6, 1e-4, 1e-2, 1.0)


def any_prices(num_layers: int) -> st.SearchStrategy[StepPrices]:
    """Of machines that nobody would build, too: whatever may seem best will be proposed."""
    return st.integers(0, 2**16).map(lambda seed: _random_prices(num_layers, random.Random(seed)))


def _random_prices(num_layers: int, draw: random.Random) -> StepPrices:
    def stairs() -> Staircase:
        return rising(draw.choice((1e-6, 1e-3, 1.0)), draw.choice(_SECONDS))

    def attention() -> AttentionPrice:
        return AttentionPrice(*(draw.choice(_SECONDS) for _ in range(4)))

    return StepPrices(
        num_layers=num_layers,
        windows=draw.choice((((0, 1.0),), ((0, 0.5), (8, 0.5)))),
        linear=stairs(),
        layer=stairs(),
        head=stairs(),
        device=attention(),
        host=attention(),
        link=stairs(),
        merge=stairs(),
        pages=PagePrice(*(draw.choice(_SECONDS) for _ in range(4))),
        launch_s=draw.choice(_SECONDS),
        max_join_wait_s=draw.choice(_SECONDS),
    )
