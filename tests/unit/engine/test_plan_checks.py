"""Flags of a GPU's kernels and copies that would do nothing are refused, and say with what."""

from dataclasses import replace
from typing import Any

import pytest

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.plan_checks import check_config
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.units import MIB

CONFIG = EngineConfig("m")
BOTH, DEVICE_ALONE = Capacities(64 * MIB, 64 * MIB), Capacities(64 * MIB, 0)


@pytest.mark.parametrize(
    ("changes", "room", "message"),
    [
        ({"link_copies": "batched"}, DEVICE_ALONE, "no meaning with --cpu-memory 0, where no"),
        (
            {"link_copies": "batched", "cpu_kv_dtype": "int8"},
            BOTH,
            "batched has no meaning with --cpu-kv-dtype int8, where no block crosses",
        ),
        (
            {"attention_backend": "flashinfer", "kv_placement": "host"},
            BOTH,
            "flashinfer has no meaning with --kv-placement host, where no prompt",
        ),
        (
            {"attention_backend": "torch", "kv_placement": "split"},
            BOTH,
            "torch has no meaning with --kv-placement split, where no prompt",
        ),
        (
            {"max_host_seqs": 8, "strategy": "gpu-only"},
            BOTH,
            "8 has no meaning with --strategy gpu-only; use --strategy auto, or leave it out",
        ),
        (
            {"max_host_seqs": 8, "kv_placement": "device"},
            BOTH,
            "8 has no meaning with --kv-placement device; use --kv-placement auto, or leave",
        ),
    ],
)
def test_what_would_do_nothing_is_refused(
    changes: dict[str, Any], room: Capacities, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        check_config(replace(CONFIG, **changes), room)
    assert error.value.param == next(iter(changes))


def test_what_does_something_is_taken() -> None:
    check_config(replace(CONFIG, link_copies="batched"), BOTH)
    check_config(replace(CONFIG, attention_backend="flashinfer"), BOTH)
    check_config(replace(CONFIG, attention_backend="triton", kv_placement="host"), BOTH)
