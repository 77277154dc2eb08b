"""What is not supported, or damaged, in a quantized checkpoint is named, with what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.parity.published_checkpoint import FILE, change, set_config, write
from tests.parity.published_formats import Published, awq, compressed, fp8, gptq
from tests.parity.quantized_weights import CASE
from tests.parity.tiny_models import build

from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_parameters
from tandem.models.config import read_model_spec
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.models.quantized_checkpoint import read_stored_quantization, stored_formats
from tandem.spec.dtype import DType
from tandem.spec.errors import ModelError
from tandem.spec.precision import Precision

Q0 = "model.layers.0.self_attn.q_proj"
UP2 = "model.layers.2.mlp.up_proj"
GPTQ, AWQ = gptq(4, 128), awq(128)
PACKED = compressed("pack-quantized", 4, 128)


def quantization(**config: Any) -> dict[str, Any]:
    return {"quantization_config": config}


def transformed(location: str) -> dict[str, Any]:
    """With a rotation, as llm-compressor's SpinQuant and QuIP write it."""
    place = {"targets": ["re:.*down_proj$"], "location": location, "inverse": False, "ignore": []}
    schemes = {"R4": {"type": "hadamard", "apply": [place], "randomize": False}}
    return {**PACKED.config, "transform_config": {"config_groups": schemes}}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "'bitsandbytes'.*gptq, awq"),
        ({"bits": 4}, "without a quant_method"),
        ({**GPTQ.config, "bits": 3}, "3 bits.*4 or 8"),
        ({**GPTQ.config, "bits": None}, "'bits'.*missing"),
        ({**GPTQ.config, "bits": "4"}, "'bits'.*not an integer"),
        ({**GPTQ.config, "group_size": 0}, "'group_size'.* is 0, neither above 0 nor -1"),
        ({**GPTQ.config, "group_size": -128}, "'group_size'.* is -128"),
        ({**GPTQ.config, "desc_act": "yes"}, "'desc_act'.*true or false"),
        ({**GPTQ.config, "checkpoint_format": "marlin"}, "'marlin'.*gptq_v2"),
        ({**GPTQ.config, "is_marlin_format": True}, "'marlin'"),
        ({**GPTQ.config, "dynamic": {".*down.*": {"bits": 8}}}, "down.*same for all"),
        ({**AWQ.config, "bits": 3}, "AWQ of 3 bits"),
        ({**AWQ.config, "group_size": 0}, "'group_size'.* is 0"),
        ({**AWQ.config, "version": "gemv"}, "'gemv'.*gemm"),
        ({**AWQ.config, "zero_point": False}, "zero_point true"),
        ({**PACKED.config, "format": "marlin-24"}, "'marlin-24'.*pack-quantized"),
        ({**PACKED.config, "config_groups": {}}, "config_groups"),
        ({**PACKED.config, "config_groups": []}, "nothing that is quantized"),
        ({**PACKED.config, "config_groups": {"group_0": {"weights": None}}}, "no weights"),
        ({**PACKED.config, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse"),
        (transformed("input"), "'R4'.*activations.*'input'.*without a transform_config"),
        (transformed("k_cache"), "'R4'.*activations.*'k_cache'"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "'e5m2'.*e4m3"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "two positive integers"),
    ],
)
def test_an_unsupported_configuration(config: dict[str, Any], named: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    set_config(tmp_path, **quantization(**config))
    with pytest.raises(ModelError, match=f"config.json: .*{named}") as error:
        read_stored_quantization(tmp_path)
    assert "; " in error.value.message, "no remedy"


def weights_of(published: Published, **changes: Any) -> dict[str, Any]:
    group = published.config["config_groups"]["group_0"]
    groups = {"group_0": {**group, "weights": {**group["weights"], **changes}}}
    return {**published.config, "config_groups": groups}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_bits": 3}, "3 bits"),
        ({"num_bits": 4, "type": "float"}, "floating point of 4 bits"),
        ({"strategy": "block"}, "by 'block'"),
        ({"group_size": 48}, "groups of 48 are not supported"),
        ({"group_size": 0}, "'group_size'.* is 0"),
        ({"group_size": None}, "'group_size'.*missing"),
    ],
)
def test_unsupported_groups(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    write(tmp_path, PACKED)
    set_config(tmp_path, **quantization(**weights_of(PACKED, **changes)))
    with pytest.raises(ModelError, match=named):
        load_model(tmp_path, DType.FLOAT32)


@pytest.mark.parametrize("published", [GPTQ, AWQ, PACKED, fp8("tensor")], ids=lambda p: p.id)
def test_a_quantization_that_no_tensor_has_is_named(tmp_path: Path, published: Published) -> None:
    build(CASE, tmp_path)
    set_config(tmp_path, quantization_config=dict(published.config))
    with pytest.raises(ModelError, match="no tensor is; remove its quantization_config"):
        stored_formats(tmp_path, read_model_spec(tmp_path))


def shuffled(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.int32).remainder(2)


@pytest.mark.parametrize(
    ("published", "tensors", "named"),
    [
        (gptq(4, 64), {f"{Q0}.g_idx": shuffled(128)}, f"{Q0}.*act-order.*desc_act false"),
        (gptq(4, 64, desc_act=True), {f"{Q0}.g_idx": None}, f"lacks tensor '{Q0}.g_idx'"),
        (GPTQ, {f"{Q0}.qzeros": None}, f"lacks tensor '{Q0}.qzeros'"),
        (GPTQ, {f"{Q0}.qweight": None}, f"lacks tensor '{Q0}.weight'"),
        (GPTQ, {f"{Q0}.more": torch.ones(1)}, f"{Q0}.more"),
        (GPTQ, {f"{Q0}.bias": torch.ones(128)}, f"unexpected tensor '{Q0}.bias'"),
        (
            GPTQ,
            {f"{Q0}.qzeros": torch.full((1, 16), -1, dtype=torch.int32)},
            f"{Q0}.*zero of 0.*gptq_v2",
        ),
        (GPTQ, {f"{Q0}.scales": torch.ones(2, 128)}, rf"{Q0}.scales.*\[2, 128\].*\[1, 128\]"),
        (GPTQ, {f"{Q0}.qweight": torch.ones(16, 128)}, f"{Q0}.qweight.*type F32, not I32"),
        (
            AWQ,
            {f"{UP2}.scales": torch.full((1, 256), 1e-30)},
            f"{UP2}.*256 of 256 scales.*no numbers of float16.*use --quantization none",
        ),
        (AWQ, {f"{UP2}.scales": torch.full((1, 256), torch.inf)}, f"{UP2}.*not finite"),
        (
            PACKED,
            {f"{Q0}.weight_g_idx": shuffled(128)},
            f"{Q0}.*act-order.*without actorder",
        ),
        (PACKED, {f"{Q0}.weight_shape": torch.tensor([128, 64])}, f"{Q0}.*weight_shape says"),
        (fp8("tensor"), {f"{Q0}.weight_scale": None}, f"there is no '{Q0}.weight_scale'"),
        (
            fp8("channel"),
            {f"{Q0}.weight_scale": torch.full((128, 1), torch.nan)},
            f"{Q0}.*not finite",
        ),
        (fp8("tensor"), {f"{Q0}.weight_zero_point": torch.ones(1)}, f"{Q0}.*zero points"),
    ],
)  # fmt: skip
def test_tensors_that_cannot_be_used(
    published: Published, tensors: dict[str, torch.Tensor | None], named: str, tmp_path: Path
) -> None:
    write(tmp_path, published)
    change(tmp_path, tensors)
    with pytest.raises(ModelError, match=named) as caught:
        load_model(tmp_path, DType.FLOAT32)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("published", "part", "dtype", "factor"),
    [
        (PACKED, "weight_scale", torch.bfloat16, 2.0**-15),
        (PACKED, "weight_scale", torch.float32, 1 / 3),
        (GPTQ, "scales", torch.float32, 1 / 3),
        (AWQ, "scales", torch.float32, 1 / 3),
    ],
    ids=lambda value: getattr(value, "id", None),
)
def test_scales_beyond_float16_can_be_had_dequantized(
    published: Published, part: str, dtype: torch.dtype, factor: float, tmp_path: Path
) -> None:
    """As the refusal says; with the same whole numbers under other scales."""
    write(tmp_path, published)
    wide = Precision.uniform(DType.FLOAT32)
    name = f"{UP2}.{part}"
    scales = load_file(tmp_path / FILE)[name]
    before = weight_of(load_model(tmp_path, wide))
    changed = (scales.double() * factor).to(dtype)
    change(tmp_path, {name: changed})
    with pytest.raises(ModelError, match=r"no numbers of float16.*--quantization none"):
        load_model(tmp_path, DType.FLOAT32)
    by_group = scales.float() if published is PACKED else scales.float().t()
    steps = before / by_group.repeat_interleave(128, 1)
    now = changed.float() if published is PACKED else changed.float().t()
    expected = steps.round() * now.repeat_interleave(128, 1)
    assert torch.equal(weight_of(load_model(tmp_path, wide)), expected)


def weight_of(model: Model) -> torch.Tensor:
    parameters = checkpoint_parameters(model.weights, load_architecture(model.spec.architecture))
    return parameters[f"{UP2}.weight"].tensor


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_file(keep: float, tmp_path: Path) -> None:
    write(tmp_path, AWQ)
    file = tmp_path / FILE
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(ModelError, match=f"{FILE} is .*download the file again"):
        load_model(tmp_path, DType.FLOAT32)


def keep_query_of_layer_1(directory: Path) -> None:
    name = "model.layers.1.mlp.down_proj"
    stored = {n for n in load_file(directory / FILE) if n.startswith(name)}
    change(directory, {**dict.fromkeys(stored), f"{name}.weight": torch.ones(128, 256)})


def keep_queries(directory: Path) -> None:
    names = [f"model.layers.{i}.self_attn.q_proj" for i in range(3)]
    stored = {n for n in load_file(directory / FILE) if n.rpartition(".")[0] in names}
    plain = {f"{name}.weight": torch.ones(128, 128) for name in names}
    change(directory, {**dict.fromkeys(stored), **plain})


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (keep_query_of_layer_1, "'down' of layers 0 and 1"),
        (keep_queries, "q and k and v of a layer"),
    ],
)
def test_layers_that_are_not_quantized_alike(
    damage: Callable[[Path], None], named: str, tmp_path: Path
) -> None:
    write(tmp_path, GPTQ)
    damage(tmp_path)
    with pytest.raises(ModelError, match=f"{named} are not quantized alike.*--quantization none"):
        load_model(tmp_path, DType.FLOAT32)
    load_model(tmp_path, Precision.uniform(DType.FLOAT32))


def test_what_only_activations_or_other_tools_need_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, GPTQ)
    extras = {
        f"{Q0}.bias": torch.zeros(128),
        f"{Q0}.input_scale": torch.ones(1),
        "model.layers.0.self_attn.k_scale": torch.ones(1),
        "model.layers.0.self_attn.q_scale": torch.ones(1),
        "model.layers.1.self_attn.kv_scale": torch.ones(1),
    }
    change(tmp_path, extras)
    load_model(tmp_path, DType.FLOAT32)


def test_transforms_that_weights_have_in_them_are_no_hindrance(tmp_path: Path) -> None:
    write(tmp_path, PACKED)
    set_config(tmp_path, **quantization(**transformed("weight_input")))
    load_model(tmp_path, DType.FLOAT32)


@pytest.mark.parametrize(
    ("near", "wide"),
    [
        (["re:model.layers.*"], ["Linear"]),
        (["exact names"], ["Linear"]),
        (["exact names"], ["re:model.layers.*"]),
    ],
)
@pytest.mark.parametrize("wide_first", [True, False])
def test_the_group_that_names_a_map_most_closely_counts(
    near: list[str], wide: list[str], wide_first: bool, tmp_path: Path
) -> None:
    """As in compressed-tensors: a name before an expression, an expression before a class."""
    written = write(tmp_path, PACKED)
    group = PACKED.config["config_groups"]["group_0"]
    right = {**group, "targets": sorted(written.weights) if near == ["exact names"] else near}
    wrong = {**group, "targets": wide, "weights": {**group["weights"], "num_bits": 8}}
    groups = [wrong, right] if wide_first else [right, wrong]
    named = {f"group_{i}": group for i, group in enumerate(groups)}
    set_config(tmp_path, **quantization(**{**PACKED.config, "config_groups": named}))
    load_model(tmp_path, DType.FLOAT32)
