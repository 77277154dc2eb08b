"""Which of a model's linear maps are kept in few bits, and in which groups."""

from collections.abc import Mapping

from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_weights
from tandem.spec.weight_format import GROUPS, WeightFormat

_PARAM = "quantization"


def map_rows(spec: ModelSpec) -> dict[str, int]:
    """The layers' linear maps: elements of a row by canonical name.

    Routers stay as they are: they are small, and a rounded one chooses other experts.
    """
    weights = [w for layer in spec.distinct_layers for w in layer_weights(spec, layer)]
    maps = {w.name.removesuffix(".weight"): w.shape[1] for w in weights if w.is_matrix}
    return {name: size for name, size in maps.items() if name != "router"}


def uniform_formats(spec: ModelSpec, bits: int, group: int | None) -> dict[str, WeightFormat]:
    """All of them alike.

    Args:
        group: elements that share a scale; None: the largest that divides every row.

    Raises:
        ConfigError: groups that do not divide the model's rows.
    """
    rows = map_rows(spec)
    chosen = WeightFormat(bits, _largest_group(rows) if group is None else group)
    _check_rows(rows, chosen)
    return dict.fromkeys(rows, chosen)


def _largest_group(rows: Mapping[str, int]) -> int:
    return max((g for g in GROUPS if all(n % g == 0 for n in rows.values())), default=GROUPS[0])


def _check_rows(rows: Mapping[str, int], format: WeightFormat) -> None:
    """Raises ConfigError, with groups that would do, unless rows are whole groups."""
    bad = next((name for name, n in rows.items() if n % format.group), None)
    if bad is None:
        return
    fitting = [str(g) for g in GROUPS if all(n % g == 0 for n in rows.values())]
    remedy = f"use a group of {' or '.join(fitting)}" if fitting else "leave --quantization out"
    raise ConfigError(
        f"the model's '{bad}' has rows of {rows[bad]} elements, which cannot be quantized in groups"
        f" of {format.group}; {remedy}",
        param=_PARAM,
    )
