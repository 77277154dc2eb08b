"""The smaller routes."""

from dataclasses import replace
from math import isnan

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.core import FOREVER_TOKEN, FakeCore, FakeTierStats
from tests.unit.server.conftest import MAX_MODEL_LEN, RunningServer, Start

import tandem
from tandem.cost.hand_overs import HandOvers
from tandem.cost.prediction_ratios import PredictionRatios
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.memory.prefix_cache import DiskStats, PrefixStats
from tandem.runtime.measures import OverlapTotals
from tandem.server.serve import access_notes
from tandem.server.settings import ServerSettings


def test_models(server: RunningServer) -> None:
    client = server.openai()
    assert [model.id for model in client.models.list()] == ["demo", "alias/demo"]
    card = client.models.retrieve("alias/demo").model_dump()
    assert (card["owned_by"], card["max_model_len"]) == ("tandem", MAX_MODEL_LEN)


def test_the_version_is_the_packages(server: RunningServer) -> None:
    with server.http() as http:
        assert http.get("/version").json() == {"version": tandem.__version__}


def test_tokens_go_there_and_back(server: RunningServer, tokenizer: Tokenizer) -> None:
    with server.http() as http:
        there = http.post(
            "/tokenize", json={"prompt": "Hello 🦜", "return_token_strs": True}
        ).json()
        back = http.post("/detokenize", json={"tokens": there["tokens"]}).json()
        chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert there["tokens"] == list(tokenizer.encode("Hello 🦜"))
    assert there["count"] == len(there["tokens"]) == len(there["token_strs"])
    assert there["max_model_len"] == MAX_MODEL_LEN
    assert back == {"prompt": "<|bos|>Hello 🦜"}
    assert chat["tokens"] == list(tokenizer.encode_chat([{"role": "user", "content": "Hi"}]))


@pytest.mark.parametrize(
    ("address", "keys", "is_noted"),
    [
        ("127.0.0.1", (), False),
        ("::1", (), False),
        ("0.0.0.0", (), True),
        ("fe80::1%eth0", (), True),
        ("0.0.0.0", ("secret",), False),
    ],
)
def test_a_server_that_all_may_ask_says_so(
    address: str, keys: tuple[str, ...], is_noted: bool
) -> None:
    notes = access_notes(ServerSettings(("demo",), api_keys=keys), address)
    assert [("--api-key" in note, address in note) for note in notes] == [(True, True)] * is_noted


def test_no_tokens_are_no_text(server: RunningServer) -> None:
    with server.http() as http:
        assert http.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


@pytest.mark.parametrize("path", ["/health", "/version", "/metrics", "/v1/models"])
def test_head_is_what_get_is_without_its_body(server: RunningServer, path: str) -> None:
    with server.http() as http:
        response = http.head(path)
        assert (response.status_code, response.content) == (200, b"")
        assert response.headers["content-type"] == http.get(path).headers["content-type"]


Samples = dict[tuple[str, str | None], float]


def metrics(server: RunningServer) -> Samples:
    """Values by name and label."""
    with server.http() as http:
        text = http.get("/metrics").text
    return {
        (sample.name, next(iter(sample.labels.values()), None)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics(start: Start) -> None:
    server = start()
    server.openai().completions.create(model="demo", prompt=[5, 6, 7], max_tokens=2)
    samples = metrics(server)
    assert samples["tandem:num_requests_running", None] == 0
    assert samples["tandem:num_requests_waiting", None] == 3
    assert samples["tandem:kv_cache_usage_perc", "device"] == 0.4
    assert samples["tandem:pinned_host_memory_bytes", None] == 4096
    assert samples["tandem:prompt_tokens_total", None] == 3
    assert samples["tandem:generation_tokens_total", None] == 2
    assert samples["tandem:request_success_total", "length"] == 1
    assert samples["tandem:time_to_first_token_seconds_count", None] == 1
    assert samples["tandem:e2e_request_latency_seconds_count", None] == 1


def test_metrics_under_vllms_names_are_the_same_values(start: Start) -> None:
    server = start(vllm_metrics=True)
    server.openai().completions.create(model="demo", prompt=[5, 6, 7], max_tokens=2)
    with server.http() as http:
        families = list(text_string_to_metric_families(http.get("/metrics").text))
    own, theirs = (
        {family.name.removeprefix(prefix): family for family in families if prefix in family.name}
        for prefix in ("tandem:", "vllm:")
    )
    assert {"generation_tokens", "num_requests_waiting", "e2e_request_latency_seconds"} < {*theirs}
    for name, family in theirs.items():
        assert family.type == own[name].type
        for sample, twin in zip(family.samples, own[name].samples, strict=True):
            assert sample.value == twin.value
            assert sample.labels == {**twin.labels, "model_name": "demo", "engine": "0"}
    assert not [name for name, _ in metrics(start()) if name.startswith("vllm:")]


@pytest.mark.parametrize(("bound_s", "in_time"), [(1e-9, "no"), (60.0, "yes")])
def test_first_tokens_are_counted_by_whether_they_kept_the_bound(
    start: Start, bound_s: float, in_time: str
) -> None:
    server = start(ttft_bound_s=bound_s)
    server.openai().completions.create(model="demo", prompt=[5, 6, 7], max_tokens=2)
    with server.http() as http:
        lines = http.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("tandem:first_tokens_total")]
    assert counted == [f'tandem:first_tokens_total{{in_time="{in_time}"}} 1.0']
    assert not [name for name, _ in metrics(start()) if name.startswith("tandem:first_tokens")]


def test_preemptions_are_a_counter_and_so_are_those_that_return_in_both_ways(start: Start) -> None:
    core = FakeCore(preemptions=2, mixed_returns=1)
    server = start(core)
    samples = metrics(server)
    assert samples["tandem:num_preemptions_total", None] == 2
    assert samples["tandem:mixed_returns_total", None] == 1
    core.preemptions, core.mixed_returns = 5, 3
    samples = metrics(server)
    assert samples["tandem:num_preemptions_total", None] == 5
    assert samples["tandem:mixed_returns_total", None] == 3


def test_overlap_is_told_only_by_engines_that_know_it(start: Start) -> None:
    assert not [name for name, _ in metrics(start()) if "share" in name or "busy" in name]
    core = FakeCore(
        overlap=OverlapTotals(10, 20.0, 15.0, 8.0, 6.0),
        recent_overlap=OverlapTotals(4, 8.0, 7.0, 0.0, 0.0),
    )
    server = start(core)
    samples = metrics(server)
    assert samples["tandem:step_seconds_total", None] == 20.0
    assert samples["tandem:accelerator_idle_share", None] == 0.125
    assert isnan(samples["tandem:cpu_attention_hidden_share", None])
    core.overlap = OverlapTotals(12, 24.0, 18.0, 9.0, 7.0)
    core.recent_overlap = OverlapTotals(4, 8.0, 6.0, 2.0, 1.5)
    samples = metrics(server)
    assert samples["tandem:accelerator_busy_seconds_total", None] == 18.0
    assert samples["tandem:cpu_attention_seconds_total", None] == 9.0
    assert samples["tandem:cpu_attention_hidden_seconds_total", None] == 7.0
    assert samples["tandem:cpu_attention_hidden_share", None] == 0.75


def test_predicted_and_measured_times_are_told_where_they_are_compared(start: Start) -> None:
    assert not [n for n, _ in metrics(start()) if "calibration" in n or "step_time_ratio" in n]
    counts = (0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 2)
    told = PredictionRatios(1.1, 0.9, 6.0, 1.5, 0.8, counts, 10.5)
    core = FakeCore(prediction=told)
    server = start(core)
    samples = metrics(server)
    assert samples["tandem:calibration_factor", "host"] == 6.0
    assert samples["tandem:calibration_factor", "copies_in"] == 1.5
    assert samples["tandem:calibration_factor", "copies_out"] == 0.8
    assert samples["tandem:step_time_ratio_count", None] == 8
    assert samples["tandem:step_time_ratio_sum", None] == 10.5
    assert samples["tandem:step_time_ratio_bucket", "0.7"] == 1
    assert samples["tandem:step_time_ratio_bucket", "1.05"] == 6
    core.prediction = replace(told, host=1.0, counts=(*counts[:-1], 3), total=13.0)
    samples = metrics(server)
    assert samples["tandem:calibration_factor", "host"] == 1.0
    assert samples["tandem:step_time_ratio_bucket", "+Inf"] == 9


def test_hand_overs_are_told_as_they_are_learnt(start: Start) -> None:
    assert not [name for name, _ in metrics(start()) if "hand_over" in name]
    core = FakeCore(hand_overs=HandOvers())
    server = start(core)
    assert metrics(server)["tandem:hand_over_seconds", "decodes"] == 0.0
    core.hand_overs = HandOvers(decodes_s=0.003, cohorts_s=0.01)
    samples = metrics(server)
    assert samples["tandem:hand_over_seconds", "decodes"] == 0.003
    assert samples["tandem:hand_over_seconds", "launched"] == 0.0
    assert samples["tandem:hand_over_seconds", "cohorts"] == 0.01


def test_what_the_prefix_cache_does_is_counted_by_tier(start: Start) -> None:
    stats = PrefixStats(
        queries=3, query_tokens=100, device_hit_tokens=32, host_hit_tokens=16, fetched_tokens=16,
        demoted_blocks=5, evicted_device_blocks=7, evicted_host_blocks=1,
    )  # fmt: skip
    core = FakeCore(prefix=stats)
    server = start(core)
    metrics(server)
    core.prefix = replace(stats, host_hit_tokens=48)
    samples = metrics(server)
    found = {key: value for key, value in samples.items() if "prefix_cache" in key[0]}
    assert {key: value for key, value in found.items() if key[0].endswith("_total")} == {
        ("tandem:prefix_cache_queries_total", None): 100,
        ("tandem:prefix_cache_hits_total", "device"): 32,
        ("tandem:prefix_cache_hits_total", "host"): 48,
        ("tandem:prefix_cache_fetched_tokens_total", None): 16,
        ("tandem:prefix_cache_demoted_blocks_total", None): 5,
        ("tandem:prefix_cache_evicted_blocks_total", "device"): 7,
        ("tandem:prefix_cache_evicted_blocks_total", "host"): 1,
    }


def test_steps_are_counted_by_what_the_strategy_does_in_them(start: Start) -> None:
    core = FakeCore(ways={"rendezvous": 3}, host_attention_tokens=7)
    server = start(core)
    metrics(server)
    core.ways = {"rendezvous": 4, "ride-along": 2}
    samples = metrics(server)
    assert samples["tandem:steps_total", "rendezvous"] == 4
    assert samples["tandem:steps_total", "ride-along"] == 2
    assert samples["tandem:attention_tokens_total", "host"] == 7
    assert samples["tandem:cohort_joins_total", None] == 0


def test_what_the_disk_does_is_counted_where_there_is_one(start: Start) -> None:
    core = FakeCore()
    server = start(core)
    assert not any("prefix_disk" in name for name, _ in metrics(server))
    core.disk = DiskStats(stored_blocks=5, room_blocks=8, written_blocks=9)
    metrics(server)
    core.disk = replace(core.disk, read_blocks=3, damaged_blocks=1, evicted_blocks=4, writing=False)
    found = {name: value for (name, _), value in metrics(server).items() if "prefix_disk" in name}
    assert {name: value for name, value in found.items() if not name.endswith("_created")} == {
        "tandem:prefix_disk_stored_blocks": 5,
        "tandem:prefix_disk_room_blocks": 8,
        "tandem:prefix_disk_writing": 0,
        "tandem:prefix_disk_written_blocks_total": 9,
        "tandem:prefix_disk_read_blocks_total": 3,
        "tandem:prefix_disk_damaged_blocks_total": 1,
        "tandem:prefix_disk_evicted_blocks_total": 4,
    }


def test_a_pool_is_named_after_the_memory_that_it_lies_in(start: Start) -> None:
    tiers = (
        FakeTierStats("device", "host", total_blocks=10, free_blocks=5),
        FakeTierStats("host", "host", total_blocks=0, free_blocks=0),
    )
    samples = metrics(start(FakeCore(tiers=tiers)))
    usage = {label: v for (name, label), v in samples.items() if "kv_cache" in name}
    assert usage == {"host": 0.5}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_counts_as_aborted(start: Start, stream: bool) -> None:
    server = start()
    body = {"prompt": [FOREVER_TOKEN], "max_tokens": 500, "n": 2, "stream": stream}
    with server.http() as http:
        request = http.build_request("POST", "/v1/completions", json=body)
        if stream:
            http.send(request, stream=True).close()
        else:
            request.extensions["timeout"] = {"read": 0.5}
            with pytest.raises(httpx.ReadTimeout):
                http.send(request)
    while server.num_running():
        pass
    samples = metrics(server)
    while not samples.get(("tandem:request_success_total", "abort")):
        samples = metrics(server)
    assert samples["tandem:request_success_total", "abort"] == 2
