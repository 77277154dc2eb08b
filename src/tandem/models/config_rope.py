"""Rotary embeddings as `config.json` gives them, now in `rope_parameters`, formerly elsewhere.

What is absent takes the value that transformers gives it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from tandem.models.config_reader import ConfigReader
from tandem.spec.model import RopeSpec

_LEAST, _MOST = 1e-6, 1e6
"""Of factors and of turns: far beyond any model's, and far within what float32 holds."""
_LARGEST_THETA = 1e30


def read_rope(
    config: ConfigReader, head_dim: int, max_positions: int, default_theta: float = 10000.0
) -> RopeSpec:
    """Rotary embedding of all layers: `rope_parameters`, or `rope_theta` with `rope_scaling`.

    Raises:
        ModelError: a kind that is not supported, partial rotation, an odd head dimension.
    """
    section = config.section("rope_scaling")
    if not section.values:
        section = config.section("rope_parameters")
    if any(isinstance(value, dict) for value in section.values.values()):
        raise config.error("rotary parameters per layer type are not supported; use another model")
    theta = section.number("rope_theta", config.number("rope_theta", default_theta))
    return rope_of(section, config, head_dim, max_positions, theta)


def rope_of(
    section: ConfigReader, config: ConfigReader, head_dim: int, max_positions: int, theta: float
) -> RopeSpec:
    """The rotary embedding that `section` of `config` describes.

    Raises:
        ModelError: as `read_rope`.
    """
    if head_dim % 2:
        raise config.error(f"rotary embedding needs an even head_dim, not {head_dim}")
    if not 1 < theta <= _LARGEST_THETA:
        raise config.error(
            f"the rotary base must be between 1 and {_LARGEST_THETA:g}, not {theta:g}"
        )
    for reader in (section, config):
        if reader.number("partial_rotary_factor", 1.0) != 1.0:
            raise config.error(
                "'partial_rotary_factor' below 1 is not supported; use another model"
            )
    kind = section.get("rope_type") or section.get("type") or "default"
    if not isinstance(kind, str) or kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise config.error(f"rotary scaling '{kind}' is not supported; supported are: {known}")
    original = section.count("original_max_position_embeddings", max_positions)
    original = config.count("original_max_position_embeddings", original)
    plain = RopeSpec(theta=theta, original_max_positions=original)
    rope = _KINDS[kind](section, plain, max_positions)
    if rope.kind == "dynamic" and head_dim == 2:
        raise config.error("rotary scaling 'dynamic' needs a head_dim above 2; use another model")
    if rope.kind == "longrope":
        for key, divisors in (("short_factor", rope.divisors), ("long_factor", rope.long_divisors)):
            if len(divisors) != head_dim // 2:
                raise section.error(
                    f"'{key}' must hold {head_dim // 2} numbers, not {len(divisors)}"
                )
    return rope


def usable_positions(rope: RopeSpec, max_positions: int) -> int:
    """How long a sequence may get without being rotated in another way than shorter ones.

    Linear and YaRN stretch what the model was pretrained with by `factor`, whether or not
    `max_position_embeddings` has been raised, too. Beyond what LongRoPE and dynamic reach so,
    `ModelSpec.for_length` rotates otherwise.
    """
    if rope.kind == "longrope":
        return min(max_positions, rope.original_max_positions)
    if rope.kind in ("linear", "yarn"):
        return max(max_positions, int(rope.original_max_positions * rope.factor))
    return max_positions


def _default(section: ConfigReader, plain: RopeSpec, max_positions: int) -> RopeSpec:
    del section, max_positions
    return RopeSpec(theta=plain.theta)


def _dynamic(section: ConfigReader, plain: RopeSpec, max_positions: int) -> RopeSpec:
    # transformers counts from max_position_embeddings, whatever the original positions are said
    # to be
    factor = _sane(section, "factor")
    return replace(
        plain,
        kind="dynamic",
        factor=factor,
        original_max_positions=max_positions,
        longest_positions=int(max_positions * factor),
    )


def _linear(section: ConfigReader, plain: RopeSpec, max_positions: int) -> RopeSpec:
    del max_positions
    return replace(plain, kind="linear", factor=_sane(section, "factor"))


def _llama3(section: ConfigReader, plain: RopeSpec, max_positions: int) -> RopeSpec:
    del max_positions
    return replace(
        plain,
        kind="llama3",
        factor=_sane(section, "factor"),
        low_freq_factor=_sane(section, "low_freq_factor"),
        high_freq_factor=_sane(section, "high_freq_factor"),
    )


def _yarn(section: ConfigReader, plain: RopeSpec, max_positions: int) -> RopeSpec:
    del max_positions
    factor = _sane(section, "factor")
    return replace(
        plain,
        kind="yarn",
        factor=factor,
        beta_fast=_sane(section, "beta_fast", 32.0),
        beta_slow=_sane(section, "beta_slow", 1.0),
        truncate=section.flag("truncate", True),
        amplitude=_sane(section, "attention_factor", _yarn_amplitude(section, factor)),
    )


def _yarn_amplitude(section: ConfigReader, factor: float) -> float:
    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    part, all_dims = section.get("mscale"), section.get("mscale_all_dim")
    if part and all_dims:
        return scale(_sane(section, "mscale")) / scale(_sane(section, "mscale_all_dim"))
    return scale(1.0)


def _longrope(section: ConfigReader, plain: RopeSpec, max_positions: int) -> RopeSpec:
    original = plain.original_max_positions
    if original == 1:  # its logarithm divides
        raise section.error("'original_max_position_embeddings' must be above 1")
    factor = _sane(section, "factor", max_positions / original)
    spread = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return replace(
        plain,
        kind="longrope",
        divisors=_sane_numbers(section, "short_factor"),
        long_divisors=_sane_numbers(section, "long_factor"),
        longest_positions=max_positions,
        amplitude=_sane(section, "attention_factor", spread),
    )


def _sane(section: ConfigReader, key: str, default: float | None = None) -> float:
    """A number of a size that rotations can be computed with."""
    value = section.number(key, default)
    _check_sane(section, key, value)
    return value


def _sane_numbers(section: ConfigReader, key: str) -> tuple[float, ...]:
    values = section.numbers(key)
    for value in values:
        _check_sane(section, key, value)
    return values


def _check_sane(section: ConfigReader, key: str, value: float) -> None:
    if not _LEAST <= value <= _MOST:
        raise section.error(
            f"'{key}' must be between {_LEAST:g} and {_MOST:g}, not {value:g}; download the model "
            "again"
        )


_KINDS: dict[str, Callable[[ConfigReader, RopeSpec, int], RopeSpec]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
