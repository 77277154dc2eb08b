"""Reading `--accelerator`."""

import pytest

from tandem.spec.accelerator import AcceleratorChoice, parse_accelerator
from tandem.spec.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", AcceleratorChoice("auto")),
        ("none", AcceleratorChoice("none")),
        ("None", AcceleratorChoice("none")),
        ("cuda", AcceleratorChoice("cuda")),
        ("CUDA:1", AcceleratorChoice("cuda", index=1)),
        ("cuda:3", AcceleratorChoice("cuda", index=3)),
        ("emulated", AcceleratorChoice("emulated")),
        ("emulated:exact,seed=7", AcceleratorChoice("emulated", seed=7)),
        ("emulated:t4", AcceleratorChoice("emulated", spec="t4")),
        ("emulated:my/own.toml,seed=2", AcceleratorChoice("emulated", seed=2, spec="my/own.toml")),
        (
            "emulated:paced,spec=a10g",
            AcceleratorChoice("emulated", mode="paced", spec="a10g"),
        ),
    ],
)
def test_forms(text: str, expected: AcceleratorChoice) -> None:
    assert parse_accelerator(text) == expected


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda:x", "none:1", "emulated:seed=x", "emulated:spec=", "emulated:fast=1"]
)
def test_other_forms_are_refused_and_the_right_ones_named(text: str) -> None:
    with pytest.raises(ConfigError, match="use auto, none, cuda") as error:
        parse_accelerator(text)
    assert error.value.param == "accelerator"
