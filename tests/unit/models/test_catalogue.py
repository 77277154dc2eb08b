import json
from pathlib import Path

import pytest
from tests.unit.models.configs import QWEN3_30B_A3B, write

from tandem.models.architecture import REGISTRY
from tandem.models.catalogue import CATALOGUE, KnownModel, known_models, plannable_spec
from tandem.spec.errors import ModelError
from tandem.spec.parameters import num_parameters

MODELS = known_models()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_known_model_has_the_published_number_of_parameters(model: KnownModel) -> None:
    count = num_parameters(model.spec())
    if model.parameters % 10**9:
        assert count == model.parameters
    else:  # published in billions only
        assert count == pytest.approx(model.parameters, rel=0.01)


def test_the_families_that_people_plan_for_are_there() -> None:
    names = {model.name for model in MODELS}
    assert len(names) == len(MODELS) > 40
    wanted = "opt-6.7b opt-13b opt-30b opt-66b llama-1-7b llama-1-65b llama-2-7b llama-2-70b "
    wanted += "llama-3-8b llama-3.1-70b llama-3.2-1b llama-3.3-70b mistral-7b-v0.1 "
    wanted += "qwen2-7b qwen2.5-72b qwen3-0.6b qwen3-32b gemma-2-27b gemma-3-27b "
    wanted += "mixtral-8x7b qwen3-30b-a3b"
    assert set(wanted.split()) <= names
    families = {str(model.config.get("architectures")[0]) for model in MODELS}
    assert families <= set(REGISTRY)


def test_every_family_says_where_its_values_come_from() -> None:
    for path in CATALOGUE.glob("*.json"):
        assert len(json.loads(path.read_text("utf-8"))["source"]) > 20, path


@pytest.mark.parametrize(
    "name",
    ["llama-3.1-8b", "Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"],
)
def test_names_ids_and_tunings_mean_the_same_shape(name: str) -> None:
    assert plannable_spec(name) == plannable_spec("llama-3.1-8b")


def test_windows_and_long_contexts_are_read() -> None:
    gemma = plannable_spec("gemma-3-27b")
    assert len(gemma.windows) == 62
    assert (gemma.windows.count(0), set(gemma.windows)) == (10, {0, 1024})
    assert plannable_spec("llama-3.1-8b").max_positions == 131072
    assert plannable_spec("opt-6.7b").position_offset == 2


def test_a_model_with_experts_in_some_layers_only_can_be_planned_for(tmp_path: Path) -> None:
    spec = plannable_spec(str(write(tmp_path, QWEN3_30B_A3B | {"mlp_only_layers": [0]})))
    experts = [spec.routed_experts(layer) is not None for layer in range(spec.num_layers)]
    assert experts == [False] + [True] * (spec.num_layers - 1)


def test_a_directory_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama-3.1-8b").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        plannable_spec("llama-3.1-8b")
    assert plannable_spec("demo").hidden_size < 1024


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lama-3.1-8b", r"no known model; known by name and near it: llama-3.1-8b"),
        ("meta-llama/Llama-3.1-9B", r"near it: llama-3.1-8b"),
        (
            "xyzzy",
            r"there is no directory 'xyzzy', and no known model; known by name are "
            r"gemma-2-27b, gemma-2-2b, gemma-2-9b, gemma-3-12b, .*, qwen3-8b$",
        ),
    ],
)
def test_an_unknown_name_gets_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        plannable_spec(name)
