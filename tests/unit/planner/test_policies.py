"""Policies restrict the search, and are named."""

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.candidate import candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.policies import POLICIES, find_policy
from tandem.planner.search.search import Search
from tandem.spec.errors import ConfigError

AUTO = POLICIES["auto"]


@pytest.mark.parametrize(("policy", "how"), [("n-gpu-layers", "cpu"), ("n-cpu-moe", "cpu-mlp")])
def test_policies_of_layers_on_the_cpu_stream_none(policy: str, how: str) -> None:
    experts = ask("qwen3-30b-a3b", "rtx4090", "server-genoa", requests=4)
    option = Search(experts).best(POLICIES[policy])
    assert option is not None
    assert option.candidate.how == how
    assert 0 < option.candidate.on_cpu < 48
    assert option.candidate.streamed == 0
    assert option.candidate.experts == 0


@pytest.mark.parametrize(
    ("model", "accelerator", "host", "requests"),
    [
        ("llama-3.1-70b", "rtx4090", "server-genoa", 395),
        ("llama-3.1-70b", "rtx4090", "server-genoa", 400),
        ("llama-3.1-8b", "l4", None, 1000),
        ("opt-6.7b", "t4", "g4dn.4xlarge", 4000),  # whose plan has passes
    ],
)
def test_no_policy_searched_by_itself_beats_the_plan(
    model: str, accelerator: str, host: str | None, requests: int
) -> None:
    question = ask(model, accelerator, host, requests=requests)
    best = Search(question).best(AUTO)
    assert best is not None
    for policy in POLICIES.values():
        option = Search(question).best(policy)
        assert option is None or option.tokens_per_s <= best.tokens_per_s * 1.00001, policy.name


def test_auto_contains_every_policy() -> None:
    assert [name for name, policy in POLICIES.items() if not AUTO.contains(policy)] == []


@pytest.mark.parametrize("policy", ["neo", "apex"])
def test_neo_is_no_worse_than_its_strawmen_where_the_accelerator_has_no_room(policy: str) -> None:
    """All requests are on the host then."""
    search = Search(ask("llama-3.1-8b", "t4", requests=1000))
    best = search.best(POLICIES[policy])
    assert best is not None
    assert best.candidate.device_rows == 0
    assert best.candidate.host_rows > 1
    for strawman in ("symmetric", "fastdecode"):
        option = search.best(POLICIES[strawman])
        assert option is not None
        assert option.tokens_per_s <= best.tokens_per_s * 1.00001


def test_neo_s_requests_ride_along_only_where_none_is_on_the_accelerator() -> None:
    neo = POLICIES["neo"]
    assert neo.allows(candidate_of("ride-along", Elsewhere(), 0, 4), 32)
    assert not neo.allows(candidate_of("ride-along", Elsewhere(), 1, 4), 32)
    assert neo.allows(candidate_of("gpu-only", Elsewhere(), 1, 0), 32)
    assert not POLICIES["fastdecode"].contains(neo)
    assert not neo.contains(POLICIES["ride-along"])


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown policy 'best'; use one of: auto, gpu-only"):
        find_policy("best")


@pytest.mark.parametrize(
    ("elsewhere", "told"),
    [
        (Elsewhere(), "weights resident"),
        (Elsewhere(embedding=True), "embeddings in host memory"),
        (Elsewhere(3, embedding=True), "3 of 8 layers streamed and embeddings in host memory"),
        (
            Elsewhere(5, 2, "host", on_disk=2, embedding=True),
            "5 of 8 layers streamed, 2 of them from disk, 2 of them on the CPU where no prompt is "
            "read and embeddings in host memory",
        ),
        (Elsewhere(0, 5, "cpu", on_disk=2), "5 of 8 layers on the CPU and 2 of them from disk"),
        (
            Elsewhere(8, 6, "host", mlps=True, experts=3),
            "3 experts of each layer resident, the others streamed (in 6 layers left to the CPU "
            "where no prompt is read)",
        ),
        (
            Elsewhere(8, 8, "host", mlps=True, experts=1, embedding=True),
            "1 expert of each layer resident, the others streamed (left to the CPU where no prompt "
            "is read) and embeddings in host memory",
        ),
        (
            Elsewhere(5, mlps=True, experts=3),
            "3 experts of each of 5 layers resident, the others streamed",
        ),
        (
            Elsewhere(0, 8, "cpu-mlp", experts=3),
            "3 experts of each layer resident, the others on the CPU",
        ),
        (Elsewhere(0, 5, "cpu-mlp"), "the MLPs of 5 of 8 layers on the CPU"),
    ],
)
def test_what_is_elsewhere_is_told_as_one_list(elsewhere: Elsewhere, told: str) -> None:
    assert elsewhere.describe(8) == told
