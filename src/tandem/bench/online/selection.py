"""Which cells are run: those named, or all."""

from collections.abc import Iterable, Sequence

from tandem.bench.online.cell import Load, OnlineCell, make_cell
from tandem.bench.online.plans import parse_policy
from tandem.plan.strategy_names import PRICED_STRATEGIES
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.errors import ConfigError

_HARDWARE = ("t4-scaled", "a10g-scaled", "rtx4090-scaled")
_MODELS = ("llama-3.1-8b", "llama-2-7b")
_LOADS = (Load(1, 50), Load(1, 1000), Load(512, 64), Load(512, 512))
_STRATEGIES = ("auto", "neo", "apex")
_TERMS, _TILE_ROWS, _JITTER = 0.3, 64, 0.02


def truth_of(seed: int, *, plain: bool) -> Perturbation:
    """Every rate off by up to 30%, products in tiles, jitter; or all as described."""
    return Perturbation() if plain else Perturbation(seed, _TERMS, _TILE_ROWS, _JITTER)


def check_policies(names: Iterable[str]) -> None:
    """Find out before a long run that they can be planned.

    Raises:
        ConfigError: one cannot.
    """
    for name in names:
        parse_policy(name)


def choose_strategies(named: Sequence[str] | None, *, policies: bool) -> tuple[str, ...]:
    """Of the engine's strategies that choose each step, those named; the usual ones where nothing
    is, policies neither.

    Args:
        policies: whether some are named.

    Raises:
        ConfigError: one chooses no steps.
    """
    for name in named or ():
        if name not in PRICED_STRATEGIES:
            raise ConfigError(
                f"--strategy '{name}' chooses no steps; use one of {', '.join(PRICED_STRATEGIES)}, "
                "or --policy for plans",
                param="strategy",
            )
    if named or policies:
        return tuple(dict.fromkeys(named or ()))
    return _STRATEGIES


def choose_cells(
    hardware: Sequence[str] | None,
    models: Sequence[str] | None,
    loads: Sequence[str] | None,
    layers: int,
    truth: Perturbation,
) -> list[OnlineCell]:
    """All combinations of what is named, and of the usual things where nothing is.

    Raises:
        ConfigError: an unknown name, or a load of another form.
    """
    wanted = choose_loads(loads)
    return [
        make_cell(card, model, layers, load, truth)
        for card in hardware or _HARDWARE
        for model in models or _MODELS
        for load in wanted
    ]


def choose_loads(loads: Sequence[str] | None) -> tuple[Load, ...]:
    """Those named, or the usual ones.

    Raises:
        ConfigError: one of another form.
    """
    return tuple(map(_parse_load, loads)) if loads else _LOADS


def _parse_load(text: str) -> Load:
    given, _, out = text.partition(":")
    if given.isdigit() and out.isdigit() and int(given) and int(out) > 1:
        return Load(int(given), int(out))
    raise ConfigError(
        f"--load '{text}' is no load; write tokens in and out, as 512:128", param="load"
    )
