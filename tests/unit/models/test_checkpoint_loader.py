"""Checkpoints: single and sharded files, one at a time; every kind of damage is named."""

import json
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from tandem.models import checkpoint, checkpoint_loader
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.dtype import DType
from tandem.spec.errors import ModelError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "dtype": "float32",
}
Q0, GATE1 = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.gate_proj.weight"
EMBEDDING = "model.embed_tokens.weight"

Tensors = dict[str, Tensor]


def tensors() -> Tensors:
    """A complete checkpoint, named as its publishers name it."""
    layer = {
        "input_layernorm": (16,),
        "self_attn.q_proj": (16, 16),
        "self_attn.k_proj": (8, 16),
        "self_attn.v_proj": (8, 16),
        "self_attn.o_proj": (16, 16),
        "post_attention_layernorm": (16,),
        "mlp.gate_proj": (24, 16),
        "mlp.up_proj": (24, 16),
        "mlp.down_proj": (16, 24),
    }
    shapes = {f"model.layers.{i}.{name}.weight": s for i in (0, 1) for name, s in layer.items()}
    shapes |= {EMBEDDING: (32, 16), "model.norm.weight": (16,), "lm_head.weight": (32, 16)}
    generator = torch.Generator().manual_seed(7)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write(directory: Path, stored: Tensors, shards: int = 1, **config: Any) -> Path:
    (directory / "config.json").write_text(json.dumps(CONFIG | config))
    if shards == 1:
        save_file(stored, directory / "model.safetensors")
        return directory
    names = sorted(stored)
    files = {
        name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors"
        for i, name in enumerate(names)
    }
    for file in set(files.values()):
        save_file({n: stored[n] for n in names if files[n] == file}, directory / file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return directory


def assert_holds(model: Model, stored: Tensors) -> None:
    attention, mlp = model.weights.layers[0], model.weights.layers[1]
    prefix = "model.layers.0.self_attn."
    qkv = torch.cat([stored[f"{prefix}{p}_proj.weight"] for p in "qkv"])
    assert torch.equal(attention["qkv"].weight, qkv)
    assert torch.equal(attention["k"].weight, stored[f"{prefix}k_proj.weight"])
    assert attention["k"].weight.untyped_storage().data_ptr() == attention["qkv"].weight.data_ptr()
    assert torch.equal(mlp["gate_up"].weight[:24], stored[GATE1])
    assert torch.equal(model.weights.outer["embedding"].weight, stored[EMBEDDING])
    assert torch.equal(model.weights.outer["head"].weight, stored["lm_head.weight"])


@pytest.mark.parametrize("shards", [1, 4])
def test_single_and_sharded_files_load_alike(shards: int, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    write(tmp_path, tensors(), shards)
    model = load_model(
        tmp_path, progress=lambda done, total, name: calls.append((done, total, name))
    )

    assert_holds(model, tensors())
    assert len(calls) == len(tensors())
    assert calls[-1][0] == calls[-1][1] == model.weights.size_bytes
    assert {name for _, _, name in calls} == set(tensors())


def test_at_most_one_shard_is_open_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, tensors(), shards=5)
    opened: list[str] = []
    now_open: list[str] = []
    real_open = checkpoint.safe_open

    @contextmanager
    def watched_open(file: Path, **options: Any) -> Iterator[Any]:
        opened.append(file.name)
        now_open.append(file.name)
        assert len(now_open) == 1
        with real_open(file, **options) as handle:
            yield handle
        now_open.remove(file.name)

    monkeypatch.setattr(checkpoint, "safe_open", watched_open)
    load_model(tmp_path)

    # Once for the headers of all, once more to read each.
    assert sorted(opened) == sorted(
        2 * [f"model-0000{i}-of-00005.safetensors" for i in range(1, 6)]
    )
    assert now_open == []


def test_no_tensor_read_from_a_file_outlives_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, tensors(), shards=3)
    earlier: list[weakref.ref[Tensor]] = []
    real_copy = checkpoint_loader._copy

    def watched_copy(copy: Any, parts: dict[str, Tensor]) -> None:
        assert all(reference() is None for reference in earlier)
        earlier.extend(weakref.ref(tensor) for tensor in parts.values())
        real_copy(copy, parts)

    monkeypatch.setattr(checkpoint_loader, "_copy", watched_copy)
    load_model(tmp_path)
    assert len(earlier) == len(tensors())


@pytest.mark.parametrize("stored_as", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wanted", list(DType))
def test_types_are_converted(stored_as: torch.dtype, wanted: DType, tmp_path: Path) -> None:
    stored = {name: tensor.to(stored_as) for name, tensor in tensors().items()}
    model = load_model(write(tmp_path, stored), wanted)
    expected = {name: tensor.to(model.dtype) for name, tensor in stored.items()}
    assert model.dtype == getattr(torch, wanted.value)
    assert_holds(model, expected)


def test_values_beyond_float16_are_refused(tmp_path: Path) -> None:
    stored = tensors()
    stored[Q0][3, 3] = 1e6
    write(tmp_path, stored)
    with pytest.raises(ModelError, match=f"{Q0}.*float16's range") as caught:
        load_model(tmp_path, DType.FLOAT16)
    assert caught.value.param == "dtype"


def without(name: str) -> Tensors:
    return {n: t for n, t in tensors().items() if n != name}


@pytest.mark.parametrize(
    ("stored", "config", "named"),
    [
        (without(Q0), {}, f"lacks tensor '{Q0}'"),
        (without("lm_head.weight"), {}, "lacks tensor 'lm_head.weight'"),
        (tensors(), {"num_hidden_layers": 3}, "and 6 more"),
        (tensors(), {"num_hidden_layers": 1}, "unexpected tensors 'model.layers.1."),
        (
            tensors() | {"model.extra.bias": torch.zeros(2)},
            {},
            "unexpected tensor 'model.extra.bias'",
        ),
        (tensors() | {Q0: torch.zeros(16, 15)}, {}, rf"{Q0}.*\[16, 15\].*\[16, 16\]"),
        (tensors(), {"num_key_value_heads": 4}, r"k_proj.*\[8, 16\].*\[16, 16\]"),
        (tensors() | {Q0: torch.zeros(16, 16, dtype=torch.int8)}, {}, f"{Q0}.*I8"),
        (tensors() | {EMBEDDING: torch.zeros(32, 16)}, {"tie_word_embeddings": True}, "tied"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    stored: Tensors, config: dict[str, Any], named: str, tmp_path: Path
) -> None:
    for shards in (1, 3):
        directory = tmp_path / str(shards)
        directory.mkdir()
        with pytest.raises(ModelError, match=named):
            load_model(write(directory, stored, shards, **config))


def test_harmless_extras_are_tolerated(tmp_path: Path) -> None:
    stored = without("lm_head.weight")
    extras = {
        "lm_head.weight": stored[EMBEDDING].clone(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2),
    }
    for number, found in enumerate((stored, stored | extras)):
        directory = tmp_path / str(number)
        directory.mkdir()
        model = load_model(write(directory, found, tie_word_embeddings=True))
        assert_holds(model, stored | {"lm_head.weight": stored[EMBEDDING]})
        assert model.weights.size_bytes == sum(t.nbytes for t in stored.values())


def test_a_tied_checkpoint_may_hold_its_head_only(tmp_path: Path) -> None:
    stored = without(EMBEDDING)
    model = load_model(write(tmp_path, stored, tie_word_embeddings=True))
    assert_holds(model, stored | {EMBEDDING: stored["lm_head.weight"]})


def test_a_bare_decoders_names_are_understood(tmp_path: Path) -> None:
    write(tmp_path, {name.removeprefix("model."): t for name, t in tensors().items()})
    assert_holds(load_model(tmp_path), tensors())


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def shorten_to_nothing(file: Path) -> None:
    file.write_bytes(b"\x08\x00")


def corrupt_header(file: Path) -> None:
    file.write_bytes((8).to_bytes(8, "little") + b"notjson!" + file.read_bytes()[16:])


@pytest.mark.parametrize("damage", [truncate, shorten_to_nothing, corrupt_header, Path.unlink])
def test_a_damaged_or_missing_file_is_named(damage: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path, tensors(), shards=3)
    file = tmp_path / "model-00002-of-00003.safetensors"
    damage(file)
    with pytest.raises(ModelError, match=str(file)) as caught:
        load_model(tmp_path)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_that_a_truncated_file_cuts_off_are_named(shards: int, tmp_path: Path) -> None:
    write(tmp_path, tensors(), shards)
    name = "model.safetensors" if shards == 1 else "model-00002-of-00003.safetensors"
    file = tmp_path / name
    with safe_open(file, framework="pt") as handle:
        in_file = list(handle.offset_keys())
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ModelError, match=rf"{file} is cut off within tensor '{in_file[-1]}';"):
        load_model(tmp_path)
    header_bytes = int.from_bytes(file.read_bytes()[:8], "little")
    file.write_bytes(file.read_bytes()[: 8 + header_bytes])
    first, second, third, *others = (f"'{tensor}'" for tensor in in_file)
    expected = f"tensors {first}, {second}, {third} and {len(others)} more;"
    with pytest.raises(ModelError, match=expected):
        load_model(tmp_path)


def test_an_index_that_disagrees_with_its_files_is_named(tmp_path: Path) -> None:
    write(tmp_path, tensors(), shards=2)
    file = tmp_path / "model-00001-of-00002.safetensors"
    kept = load_file(file)
    lost = sorted(kept)[0]
    save_file({n: t for n, t in kept.items() if n != lost}, file)
    with pytest.raises(ModelError, match=f"{file} lacks tensor '{lost}'"):
        load_model(tmp_path)


def test_an_index_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    write(tmp_path, tensors(), shards=2)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {Q0: "../other.safetensors"}}))
    with pytest.raises(ModelError, match=f"'{Q0}' must lie in a file of the same directory"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        (None, "--load-format dummy"),
        ("pytorch_model.bin", "pickled weights"),
        ("consolidated.safetensors", "neither model.safetensors nor"),
    ],
)
def test_a_directory_without_usable_weights(file: str | None, named: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    if file is not None:
        (tmp_path / file).touch()
    with pytest.raises(ModelError, match=named):
        load_model(tmp_path)
