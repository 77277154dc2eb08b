"""A plan's file: what is written is read back, and nothing else is taken for a plan."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.plans import plan_of
from tests.support.setups import going_together

from tandem.plan.online import OnlinePlan
from tandem.plan.plan_file import PlanFile, read_plan
from tandem.plan.strategy_names import COHORT_STRATEGIES, STRATEGIES
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import EMBEDDING_HOMES, HOMES, LENT, Home, as_runs
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError

BESIDE: list[Home] = [home for home in (*HOMES, "disk_streamed") if home != "disk"]
ALONE: list[Home] = ["resident", "disk"]
texts = st.text(max_size=20)
counts = st.integers(0, 1 << 40)
some = st.integers(1, 1 << 20)


@st.composite
def plans(draw: st.DrawFn) -> PlanFile:
    """Any plan that an engine could be asked for."""
    host_only = draw(st.booleans())
    some_homes = st.sampled_from(ALONE if host_only else BESIDE)
    homes: list[Home] = draw(st.lists(some_homes, min_size=1, max_size=12))
    homes = [home for _, home in going_together(homes, ())[0]]
    hosted = tuple(layer for layer, home in enumerate(homes) if home in LENT)
    rules = (CpuRule(draw(some), hosted),) if len(hosted) == len(homes) else ()
    made = plan_of(len(homes))
    strategy = draw(st.sampled_from(STRATEGIES))
    fewest = 1 if strategy in COHORT_STRATEGIES else 0
    plan = OnlinePlan(
        strategy=strategy,
        weights=as_runs(homes),
        device_blocks=draw(counts),
        host_blocks=draw(counts),
        block_size=draw(st.sampled_from([16, 64, 256])),
        max_model_len=draw(some),
        max_num_seqs=draw(some),
        max_num_batched_tokens=draw(some),
        launch_ahead_steps=draw(st.integers(1, 3)),
        max_cohorts=draw(st.integers(fewest, 4)),
        max_cohort_rows=draw(st.integers(fewest, 1 << 40)),
        max_join_wait_s=draw(st.floats(0, 10)),
        cpu_rules=rules,
        kv_placement=draw(st.sampled_from(["auto", "device", "host", "split"])),
        max_host_seqs=draw(counts),
        max_device_seqs=draw(counts),
        prompts_on_device=draw(st.booleans()),
        split_blocks=draw(counts),
        embedding="resident" if host_only else draw(st.sampled_from(EMBEDDING_HOMES)),
        interposition_budget=draw(counts),
        notes=tuple(draw(st.lists(texts, max_size=2))),
    )
    return replace(
        made, plan=plan, host_only=host_only, model_name=draw(texts), hardware=draw(texts)
    )


@given(plans())
def test_what_is_written_is_read_and_configures_an_engine(planned: PlanFile) -> None:
    assert OnlinePlan.from_json(planned.online.to_json()) == planned.online
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(planned.to_json(), "utf-8")
        assert read_plan(path) == planned
    config = EngineConfig(model="any", **planned.settings)
    assert config.max_num_seqs == planned.online.max_num_seqs
    assert config.accelerator == ("none" if planned.host_only else "auto")


WHOLE = plan_of(4).to_json()


@given(st.integers(0, len(WHOLE.rstrip()) - 1))
def test_a_file_that_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(ConfigError):
        PlanFile.from_json(WHOLE[:length])


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every field and list entry of parsed JSON."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(found for key, each in inner for found in fields_of(each, (*path, key)))][
        0 if path else 1 :
    ]


ODD = [None, True, -1, 0.5, 10**30, float("nan"), float("inf"), "", "x", [], [3], {}, {"a": 1}]


@given(st.sampled_from(fields_of(json.loads(WHOLE))), st.sampled_from(ODD), st.booleans())
def test_a_file_with_another_value_is_refused_or_is_a_plan(
    path: tuple[Any, ...], odd: Any, drop: bool
) -> None:
    values = json.loads(WHOLE)
    *way, last = path
    inner = values
    for key in way:
        inner = inner[key]
    if drop:
        del inner[last]
    else:
        inner[last] = odd
    with contextlib.suppress(ConfigError):
        planned = PlanFile.from_json(json.dumps(values))
        EngineConfig(model="any", **planned.settings)
        assert PlanFile.from_json(planned.to_json()) == planned
