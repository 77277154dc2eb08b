"""The mixture of experts that `config.json` describes."""

from tandem.models.config_reader import ConfigReader
from tandem.spec.model import ExpertSpec

KEYS = frozenset({"num_experts", "num_local_experts"})


def read_experts(
    config: ConfigReader,
    *,
    count: int,
    per_token: int,
    intermediate_size: int,
    renormalized: bool,
    dense_layers: tuple[int, ...] = (),
) -> ExpertSpec:
    """Experts of a layer, `num_experts` or `num_local_experts`, and `num_experts_per_tok` of them.

    Args:
        count, per_token: what absent keys mean.
        intermediate_size, renormalized, dense_layers: see `ExpertSpec`.

    Raises:
        ModelError: a token would go to more experts than there are.
    """
    count = config.count("num_experts", config.count("num_local_experts", count))
    per_token = config.count("num_experts_per_tok", per_token)
    if per_token > count:
        raise config.error(f"'num_experts_per_tok' is {per_token}, but there are {count} experts")
    return ExpertSpec(count, per_token, intermediate_size, renormalized, dense_layers)


def read_dense_layers(config: ConfigReader, num_layers: int) -> tuple[int, ...]:
    """Layers without experts: `mlp_only_layers`, and all but every `decoder_sparse_step`-th.

    Raises:
        ModelError: not a list of layers, or no layer has experts.
    """
    named = config.get("mlp_only_layers") or []
    if not isinstance(named, list) or not all(type(layer) is int for layer in named):
        raise config.error(f"'mlp_only_layers' must be a list of layers, not {named!r}")
    step = config.count("decoder_sparse_step", 1)
    dense = tuple(i for i in range(num_layers) if i in named or (i + 1) % step)
    if len(dense) == num_layers:
        raise config.error("no layer has experts: see 'decoder_sparse_step' and 'mlp_only_layers'")
    return dense
