"""Model arguments become directories without any network."""

import os
from pathlib import Path

import pytest

from tandem.models.resolve import hub_cache, resolve_model
from tandem.spec.errors import ModelError


def test_the_demo_model_is_packaged() -> None:
    assert (resolve_model("demo") / "config.json").is_file()


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert resolve_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    ("folder", "model"),
    [
        ("models--some-org--Some.Model-1B", "some-org/Some.Model-1B"),
        ("models--Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"),  # as `tandem plan` names it
        ("models--Qwen--Qwen3-30B-A3B", "Qwen3-30B-A3B"),
    ],
)
def test_a_hugging_face_id_is_found_in_the_cache(folder: str, model: str, tmp_path: Path) -> None:
    repository = tmp_path / folder
    snapshot = repository / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123\n")
    assert resolve_model(model, {"HF_HUB_CACHE": str(tmp_path)}) == snapshot


def test_the_cache_agrees_with_hugging_face_hub(tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    assert hub_cache(os.environ) == Path(constants.HF_HUB_CACHE)
    assert hub_cache({"HF_HOME": str(tmp_path)}) == tmp_path / "hub"
    assert hub_cache({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "huggingface" / "hub"
    assert hub_cache({"HOME": "/home/a"}) == Path("/home/a/.cache/huggingface/hub")


def test_an_absent_model_says_that_nothing_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nothing is downloaded.*hf download org/model"):
        resolve_model("org/model", {"HF_HUB_CACHE": str(tmp_path)})


def test_a_name_of_the_planner_s_says_which_model_is_meant(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="of which 'opt-30b' is the name") as error:
        resolve_model("opt-30b", {"HF_HUB_CACHE": str(tmp_path)})
    assert error.value.message.endswith("fetch it with: hf download facebook/opt-30b")


@pytest.mark.parametrize(
    "model", ["no-such-directory", "/no/such/directory", "./a/b", "", "~nobody/x", "\0", "a" * 9999]
)
def test_an_absent_directory_is_named(model: str) -> None:
    with pytest.raises(ModelError, match="no directory"):
        resolve_model(model, {})


def test_a_name_that_nothing_has_is_told_what_would_do() -> None:
    with pytest.raises(ModelError, match="there is no directory") as caught:
        resolve_model("nosuchmodel")
    assert all(form in str(caught.value) for form in ("directory", "ORGANIZATION/NAME", "demo"))
