"""Which layers see a sliding window, as `config.json` gives it: `layer_types`, or a rule."""

from collections.abc import Callable

from tandem.models.config_reader import ConfigReader

_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_windows(
    config: ConfigReader, num_layers: int, is_sliding: Callable[[int], bool]
) -> tuple[int, ...]:
    """`ModelSpec.windows`: `sliding_window` positions in sliding layers; empty if there are none.

    Args:
        is_sliding: of each layer if there are no `layer_types`.

    Raises:
        ModelError: layer types that are not one known type per layer, or no window for them.
    """
    sliding = _read_layer_types(config, num_layers)
    if sliding is None:
        sliding = [is_sliding(layer) for layer in range(num_layers)]
    if not any(sliding):
        return ()
    window = config.count("sliding_window")
    return tuple(window if is_sliding else 0 for is_sliding in sliding)


def read_uniform_window(config: ConfigReader, num_layers: int) -> tuple[int, ...]:
    """The same window in all layers if `sliding_window` is not null."""
    if config.get("sliding_window") is None:
        return ()
    return (config.count("sliding_window"),) * num_layers


def read_qwen_windows(config: ConfigReader, num_layers: int) -> tuple[int, ...]:
    """Qwen's rule: from layer `max_window_layers` on, if `use_sliding_window` is true."""
    config = config.with_defaults({"sliding_window": 4096, "max_window_layers": 28})
    used = config.flag("use_sliding_window", False) and config.get("sliding_window") is not None
    if not used:
        types = _read_layer_types(config, num_layers)
        if types is not None and any(types):
            raise config.error(
                "'layer_types' names sliding layers, but 'use_sliding_window' is not true; "
                "make them agree"
            )
        return ()
    first = config.index("max_window_layers")
    return read_windows(config, num_layers, lambda layer: layer >= first)


def _read_layer_types(config: ConfigReader, num_layers: int) -> list[bool] | None:
    """Whether each layer slides; None if there is no such key."""
    types = config.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != num_layers:
        raise config.error(f"'layer_types' must list a type for each of {num_layers} layers")
    unknown = next((kind for kind in types if kind not in (_FULL, _SLIDING)), None)
    if unknown is not None:
        raise config.error(
            f"layer type {unknown!r} is not supported; supported are: {_FULL}, {_SLIDING}"
        )
    return [kind == _SLIDING for kind in types]
