"""A plan's file names what is wrong with it in its own words."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.blocks import small_plan
from tests.support.plans import PLAN, plan_of

from tandem.cli.terminal import printable
from tandem.plan.plan_file import PlanFile
from tandem.spec.errors import ConfigError


def blocks_file() -> dict[str, Any]:
    """A file with a plan for blocks, of a model with one layer."""
    values = json.loads(plan_of(1).to_json())
    plan = small_plan(("streamed",), resident_rows=1, streamed_rows=1)
    types = {"dtype": "float32", "kv_cache_dtype": "float32", "cpu_kv_dtype": "auto"}
    return values | types | {"offline": True, "host_only": False, "plan": plan.to_object()}


CHANGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda file: file["plan"].update(kv_dtype="int3"), "KV on the accelerator is in 'int3'"),
    (lambda file: file["plan"].update(host_blocks=0), "KV in host_blocks, which are 0"),
    (lambda file: file["plan"].update(device_blocks=0), "KV in device_blocks, which are 0"),
    (lambda file: file["plan"].update(zzz=1), "plan has no field 'zzz'"),
    (lambda file: file["plan"].pop("batches"), "plan.batches is missing"),
    (lambda file: file["plan"].pop("weights"), "weights is missing"),
    (lambda file: file["plan"].update(host={}), "host.capacity_bytes is missing"),
    (lambda file: file["plan"].update(host=3), "host must be an object, not 3"),
    (lambda file: file["plan"].update(terms={"x": 1}), "terms.attention must be an object"),
    (lambda file: file["plan"].update(format=True), "not of format 1"),
    (lambda file: file.update(format=True), "it has format True"),
    (lambda file: file.update(model=[]), "model must be an object"),
    (lambda file: file.update(zzz=1), "the file has no field 'zzz'"),
    (lambda file: file.pop("precision"), "the file.precision is missing"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_what_is_wrong_is_named(change: Callable[[dict[str, Any]], object], message: str) -> None:
    file = blocks_file()
    assert PlanFile.from_json(json.dumps(file)).is_for_blocks
    change(file)
    with pytest.raises(ConfigError) as error:
        PlanFile.from_json(json.dumps(file))
    assert message in error.value.message
    assert "__init__" not in error.value.message


def test_one_note_is_one_note() -> None:
    file = blocks_file()
    file["plan"]["notes"] = "abc"
    assert PlanFile.from_json(json.dumps(file)).plan.notes == ("abc",)


@pytest.mark.parametrize("name", ["strategy", "kv_placement"])
def test_an_online_plan_has_names_that_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} 'x' is none of"):
        PLAN.from_object(PLAN.to_object() | {name: "x"})


def test_notes_do_not_steer_a_terminal() -> None:
    assert printable("a \x1b[31mred\n é") == "a \\x1b[31mred\\n é"
