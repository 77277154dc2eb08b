"""An engine's configuration takes what Python callers naturally write."""

from pathlib import Path
from typing import Any

import pytest

from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.units import GIB, parse_size


def test_whole_numbers_are_bytes_and_paths_are_models() -> None:
    config = EngineConfig.from_options({"model": Path("/models/x"), "cpu_memory": 8 * GIB})
    assert config.model == "/models/x"
    assert parse_size(config.cpu_memory) == 8 * GIB
    assert EngineConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_seqs": "4"}, "max_num_seqs must be a whole number, not '4'"),
        ({"max_model_len": 9.5}, "max_model_len must be a whole number or None, not 9.5"),
        ({"cpu_memory": 1.5}, "cpu_memory must be a size such as '12GiB', or a number of bytes"),
        ({"dtype": float}, "dtype must be a text, not <class 'float'>"),
        ({"overlap": "no"}, "overlap must be True or False, not 'no'"),
        ({"seed": None}, "seed must be a whole number, not None"),
        ({"max_host_seqs": -1}, "--max-host-seqs must be at least 0, not -1"),
        ({"host_prefix_share": 1.5}, "--host-prefix-share must be between 0 and 1, not 1.5"),
        ({"foo": 1}, "unknown engine option 'foo'; use some of: model, accelerator"),
    ],
    ids=str,
)
def test_other_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig.from_options({"model": "demo", **options})
    assert caught.value.message.startswith(message)
    assert caught.value.param in options
