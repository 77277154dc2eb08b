"""Counts of experts in a file: what was written is read, and what belongs elsewhere is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.engine.sizing.expert_hits_file import check_writable, read_expert_use, write_expert_hits
from tandem.models.catalogue import plannable_spec
from tandem.spec.errors import ConfigError
from tandem.spec.model import ExpertSpec

MOE, DENSE = plannable_spec("mixtral-8x7b"), plannable_spec("llama-3.1-8b")
SPEC = replace(MOE, num_layers=3, experts=ExpertSpec(4, 2, 64, dense_layers=(1,)))
COUNTS = ((30, 10, 20, 0), (0, 0, 0, 0), (5, 5, 5, 5))


def test_shares_are_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "hits.json"
    write_expert_hits(path, "tiny", COUNTS)
    use = read_expert_use(path, SPEC)
    assert use.shares == ((1.0, 1 / 3, 2 / 3, 0.0), (), (0.5,) * 4)
    assert use.touched(0, range(4), 2) == pytest.approx(1 + 5 / 9 + 8 / 9)
    assert use.of(0, (0, 1)) == pytest.approx(2 / 3)
    write_expert_hits(path, "tiny", ((0,) * 4, (), (9, 0, 0, 9)))  # replaces what was there
    assert read_expert_use(path, SPEC).shares == ((0.5,) * 4, (), (1.0, 0.0, 0.0, 1.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["hits.json"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ([], "no JSON object"),
        ({"format": 1, "model": "m"}, "it needs format 1"),
        ({"format": 2, "model": "m", "expert_hits": COUNTS}, "it needs format 1"),
        ({"format": 1, "expert_hits": COUNTS}, "it needs format 1"),
        ({"format": 1, "model": "m", "expert_hits": [[1, -1]]}, "whole numbers from 0"),
        ({"format": 1, "model": "m", "expert_hits": [[1.0]]}, "whole numbers from 0"),
        ({"format": 1, "model": "m", "expert_hits": COUNTS[:2]}, "2 layers of 'm'.* has 3"),
        (
            {"format": 1, "model": "m", "expert_hits": (COUNTS[0], (), (1, 2, 3))},
            "layer 2 of 'm' has 3 experts, but of this model 4",
        ),
        (
            {"format": 1, "model": "m", "expert_hits": (COUNTS[0],) * 3},
            "layer 1 of 'm' has experts, but not of this model",
        ),
        ({"format": 1, "model": "m", "expert_hits": ((0,) * 4,) * 3}, "nothing has been counted"),
    ],
)
def test_files_that_say_something_else_are_refused(
    value: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "hits.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ConfigError, match=message) as error:
        read_expert_use(path, SPEC)
    assert error.value.param == "expert_hits"


def test_a_model_without_experts_has_none_to_place_or_count(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no experts to place"):
        read_expert_use(tmp_path / "hits.json", DENSE)
    with pytest.raises(ConfigError, match="no experts to count"):
        check_writable(tmp_path / "hits.json", DENSE)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_expert_use(tmp_path / "none.json", SPEC)
    for path in (tmp_path, tmp_path / "none" / "hits.json"):
        with pytest.raises(ConfigError, match="cannot write expert hits"):
            check_writable(path, SPEC)
        with pytest.raises(ConfigError, match="cannot write expert hits"):
            write_expert_hits(path, "tiny", COUNTS)
    assert not list(tmp_path.iterdir())
