"""The smaller routes."""

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.server.conftest import MAX_MODEL_LEN, RunningServer, Start

from tandem.engine.frontend.tokenizer import Tokenizer


def test_models(server: RunningServer) -> None:
    client = server.openai()
    assert [model.id for model in client.models.list()] == ["demo", "alias/demo"]
    card = client.models.retrieve("alias/demo").model_dump()
    assert (card["owned_by"], card["max_model_len"]) == ("tandem", MAX_MODEL_LEN)


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


def test_metrics(start: Start) -> None:
    server = start()
    server.openai().completions.create(model="demo", prompt=[5, 6, 7], max_tokens=2)
    with server.http() as http:
        text = http.get("/metrics").text
    samples = {
        (sample.name, sample.labels.get("tier") or sample.labels.get("finished_reason")): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["tandem:num_requests_running", None] == 0
    assert samples["tandem:num_requests_waiting", None] == 3
    assert samples["tandem:kv_cache_usage_perc", "device"] == 0.4
    assert samples["tandem:prompt_tokens_total", None] == 3
    assert samples["tandem:generation_tokens_total", None] == 2
    assert samples["tandem:request_success_total", "length"] == 1
    assert samples["tandem:time_to_first_token_seconds_count", None] == 1
    assert samples["tandem:e2e_request_latency_seconds_count", None] == 1
