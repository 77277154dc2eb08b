"""Online plans survive JSON; what is no plan is refused in one line."""

import json

import pytest

from tandem.plan.online import FORMAT, OnlinePlan
from tandem.plan.weights import WeightPlacement
from tandem.spec.errors import ConfigError

PLAN = OnlinePlan(
    strategy="rendezvous",
    weights=(WeightPlacement(0, 3), WeightPlacement(4, 7, "streamed")),
    device_blocks=10,
    host_blocks=20,
    block_size=64,
    max_model_len=640,
    max_num_seqs=4,
    max_num_batched_tokens=128,
    max_join_wait_s=0.25,
    notes=("context limited to 640 tokens",),
)


def test_a_plan_survives_json() -> None:
    text = PLAN.to_json()
    assert OnlinePlan.from_json(text) == PLAN
    assert json.loads(text)["format"] == FORMAT
    assert "\n" not in text


def test_what_has_a_default_may_be_missing() -> None:
    values = json.loads(PLAN.to_json())
    del values["notes"], values["max_join_wait_s"]
    plan = OnlinePlan.from_json(json.dumps(values))
    assert (plan.notes, plan.max_join_wait_s) == ((), 0.002)


def changed(**changes: object) -> str:
    return json.dumps({**json.loads(PLAN.to_json()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        changed(format=FORMAT + 1),
        changed(weights=None),
        changed(weights=[{"first_layer": 0}]),
        changed(weights=[3]),
        changed(notes=3),
        changed(surprise=1),
        changed(max_cohorts=0),
        changed(max_cohort_rows=0),
        json.dumps({"format": FORMAT, "weights": []}),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="make it anew") as error:
        OnlinePlan.from_json(text)
    assert "\n" not in error.value.message
