"""Every failure has the right status and OpenAI's shape; the server goes on."""

import json
from http.client import HTTPConnection
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.core import BROKEN_TOKEN, CRASH_TOKEN, FOREVER_TOKEN, VOCAB_SIZE, FakeCore
from tests.unit.server.conftest import RunningServer, Start

from tandem.server.settings import ServerSettings

PROMPT = {"prompt": "Hi"}


def checked_error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


BAD_BODIES: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b'{"prompt": NaN}', "NaN"),
    (b'\xff\xfe{"prompt": 1}', "not UTF-8"),
    (b'{"prompt": "\xe2\x28\xa1"}', "not UTF-8"),
    (b"[1, 2]", "not a JSON object"),
    (b"[" * 100_000, "nested too deeply"),
]


@pytest.mark.parametrize(("body", "message"), BAD_BODIES, ids=lambda value: str(value)[:20])
def test_bodies_that_are_not_json_objects(server: RunningServer, body: bytes, message: str) -> None:
    with server.http() as http:
        error = checked_error(http.post("/v1/completions", content=body), 400)
        assert message in error["message"]
        assert http.post("/v1/completions", json=PROMPT).status_code == 200


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [VOCAB_SIZE]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": "\ud800"}, "prompt"),
    ({**PROMPT, "temperature": -1}, "temperature"),
    ({**PROMPT, "temperature": "hot"}, "temperature"),
    ({**PROMPT, "top_p": 0}, "top_p"),
    ({**PROMPT, "top_k": -2}, "top_k"),
    ({**PROMPT, "max_tokens": 0}, "max_tokens"),
    ({**PROMPT, "max_tokens": 1.5}, "max_tokens"),
    ({**PROMPT, "n": 0}, "n"),
    ({**PROMPT, "n": 1000}, "n"),
    ({**PROMPT, "best_of": 1, "n": 2}, "best_of"),
    ({**PROMPT, "best_of": 129}, "best_of"),
    ({**PROMPT, "best_of": 2**31}, "best_of"),
    ({**PROMPT, "best_of": 2, "stream": True}, "best_of"),
    ({**PROMPT, "stop": [""]}, "stop"),
    ({**PROMPT, "stop": 5}, "stop"),
    ({**PROMPT, "seed": 2**70}, "seed"),
    ({**PROMPT, "logprobs": 99}, "logprobs"),
    ({**PROMPT, "echo": True, "logprobs": 1}, "echo"),
    ({**PROMPT, "suffix": "x"}, "suffix"),
    ({**PROMPT, "logit_bias": {"x": 1}}, "logit_bias"),
    ({**PROMPT, "logit_bias": {"5": 1e308}}, "logit_bias"),
    ({**PROMPT, "temperature": 10**400}, "temperature"),
    ({**PROMPT, "stream_options": {"include_usage": True}}, "stream_options"),
    ({**PROMPT, "stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
    ({**PROMPT, "guided_json": {}}, "guided_json"),
    ({**PROMPT, "temprature": 1}, "temprature"),
]


@pytest.mark.parametrize(("body", "param"), BAD_FIELDS, ids=str)
def test_bad_fields_are_named(server: RunningServer, body: dict[str, Any], param: str) -> None:
    with server.http() as http:
        response = http.post("/v1/completions", content=json.dumps(body).encode())
    error = checked_error(response, 400)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert "\n" not in error["message"]


@pytest.mark.parametrize("extra", [{"suffix": "x"}, {"skip_special_tokens": False}], ids=str)
def test_what_is_not_done_has_a_code_of_its_own(
    server: RunningServer, extra: dict[str, Any]
) -> None:
    with server.http() as http:
        error = checked_error(http.post("/v1/completions", json={**PROMPT, **extra}), 400)
    assert (error["param"], error["code"]) == (next(iter(extra)), "unsupported_parameter")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["prompt", "n", "max_tokens", "stop", "logit_bias", "messages", "stream", "tokens"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"]),
    body=st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4),
)
def test_no_body_causes_an_internal_error(
    server: RunningServer, path: str, body: dict[str, Any]
) -> None:
    body.pop("n", None) if body.get("n", 0) == 0 else None
    with server.http() as http:
        response = http.post(path, content=json.dumps(body).encode())
    assert response.status_code in (200, 400)
    if response.status_code == 400:
        checked_error(response, 400)


def test_an_unknown_model(server: RunningServer) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        server.openai().completions.create(model="gpt-5", prompt="Hi")
    assert caught.value.code == "model_not_found"
    with server.http() as http:
        body = json.dumps({"model": "\ud800", **PROMPT}).encode()
        checked_error(http.post("/v1/completions", content=body), 404)
        checked_error(http.get("/v1/models/nope"), 404)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/files", "/v1/completions/", "/docs2"])
def test_unknown_routes(server: RunningServer, path: str) -> None:
    with server.http() as http:
        error = checked_error(http.get(path), 404)
    assert path in error["message"]
    assert "/v1/chat/completions, /v1/models, /tokenize" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/completions", "POST"), ("POST", "/v1/models", "GET, HEAD")],
)
def test_a_wrong_method(server: RunningServer, method: str, path: str, allowed: str) -> None:
    with server.http() as http:
        response = http.request(method, path)
        error = checked_error(response, 405)
    assert response.headers["allow"] == allowed
    assert allowed in error["message"]


def test_tokens_without_a_text_are_named(server: RunningServer) -> None:
    with server.http() as http:
        for tokens in ([VOCAB_SIZE], [-1], ["a"]):
            error = checked_error(http.post("/detokenize", json={"tokens": tokens}), 400)
            assert error["param"] == "tokens"


def test_too_long_a_prompt(server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.openai().completions.create(model="demo", prompt=[5] * 600)
    assert caught.value.code == "context_length_exceeded"
    assert "600 tokens" in caught.value.message


def test_overload_asks_to_come_back(start: Start) -> None:
    server = start(FakeCore(max_waiting=0))
    with server.http() as http:
        response = http.post("/v1/completions", json={**PROMPT, "stream": True})
        error = checked_error(response, 503)
    assert int(response.headers["retry-after"]) >= 1
    assert error["code"] == "overloaded"


def test_too_many_sequences_at_once(server: RunningServer) -> None:
    with server.http() as http:
        body = {"prompt": [[5]] * 20, "n": 128}
        error = checked_error(http.post("/v1/completions", json=body), 400)
        assert (error["param"], "2560 sequences" in error["message"]) == ("n", True)
        error = checked_error(http.post("/v1/completions", json={"prompt": ["a"] * 2049}), 400)
        assert error["param"] == "prompt"
    assert server.core.requests == []


def test_more_samples_than_the_queue_ever_holds(start: Start) -> None:
    server = start(max_queued=2)
    with server.http() as http:
        for path, body in (
            ("/v1/completions", {**PROMPT, "n": 3}),
            ("/v1/completions", {"prompt": ["a", "b", "c"], "stream": True}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "n": 3}),
        ):
            assert checked_error(http.post(path, json=body), 400)["param"] == "n"
        assert http.post("/v1/completions", json={**PROMPT, "n": 2}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
def test_a_text_far_beyond_the_context(server: RunningServer, path: str) -> None:
    text = "word " * 1_000_000
    body = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
    with server.http() as http:
        error = checked_error(http.post(path, json=body), 400)
    assert error["code"] == "context_length_exceeded"
    assert "bytes" in error["message"]


def test_a_fault_in_the_engine_hurts_one_request(server: RunningServer) -> None:
    with server.http() as http:
        checked_error(http.post("/v1/completions", json={"prompt": [BROKEN_TOKEN]}), 500)
        assert http.post("/v1/completions", json=PROMPT).status_code == 200
        assert http.get("/health").status_code == 200


def test_the_engines_death_is_told_to_everyone(start: Start) -> None:
    server = start()
    with server.http() as http:
        body = {"prompt": [FOREVER_TOKEN], "max_tokens": 400, "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            checked_error(
                server.http().post("/v1/completions", json={"prompt": [CRASH_TOKEN]}), 503
            )
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["error"]["type"] == "server_error"
        response = http.post("/v1/completions", json=PROMPT)
        assert checked_error(response, 503)["code"] == "engine_dead"
        assert "retry-after" not in response.headers  # this server will not come back
        assert http.get("/health").status_code == 503
    assert server.died.is_set()


def test_body_size(start: Start) -> None:
    server = start(max_body_bytes=1000)
    with server.http() as http:
        big = json.dumps({"prompt": "x" * 2000}).encode()
        checked_error(http.post("/v1/completions", content=big), 413)
        # Without an announced length.
        checked_error(http.post("/v1/completions", content=iter([big[:900], big[900:]])), 413)
        assert http.post("/v1/completions", json=PROMPT).status_code == 200


def test_api_keys(start: Start) -> None:
    server = start(api_keys=("first", "sécond"))
    with server.http() as http:
        assert http.get("/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/nope"):
            error = checked_error(http.get(path), 401)
            assert error["code"] == "invalid_api_key"
        for header in ("Bearer wrong", "Basic first", "first", "Bearer", "Bearer \xff"):
            headers = {b"Authorization": header.encode("latin-1")}
            assert http.get("/v1/models", headers=headers).status_code == 401
        headers = {b"Authorization": "Bearer sécond".encode()}
        assert http.get("/v1/models", headers=headers).status_code == 200
    assert server.openai("first").models.list().data[0].id == "demo"


def preflight(http: httpx.Client, origin: str) -> httpx.Response:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-any"}
    return http.options("/v1/chat/completions", headers={"Origin": origin, **asked})


def test_web_pages_ask_only_if_they_may(start: Start) -> None:
    ours, theirs = "http://localhost:3000", "https://example.com"
    server = start(allowed_origins=(ours,), api_keys=("secret",))
    with server.http() as http:
        assert preflight(http, ours).headers["access-control-allow-origin"] == ours
        assert preflight(http, theirs).status_code == 400
        refused = http.get("/v1/models", headers={"Origin": ours})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == ours
    with start().http() as http:
        assert "access-control-allow-origin" not in preflight(http, ours).headers


@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
def test_pages_that_may_not_ask_are_refused_without_a_preflight(
    start: Start, content_type: str
) -> None:
    def ask(server: RunningServer, origin: str) -> httpx.Response:
        headers = {"Origin": origin, "Content-Type": content_type}
        with server.http() as http:
            return http.post("/v1/completions", content=json.dumps(PROMPT), headers=headers)

    ours, theirs = "http://localhost:3000", "https://example.com"
    server = start()
    error = checked_error(ask(server, theirs), 403)
    assert theirs in error["message"]
    assert "--allowed-origins" in error["message"]
    assert error["code"] == "origin_not_allowed"
    assert server.core.requests == []
    server = start(allowed_origins=(ours,))
    assert ask(server, ours).status_code == 200
    assert ask(server, theirs).status_code == 403
    assert ask(start(allowed_origins=("*",)), theirs).status_code == 200


@pytest.mark.parametrize("origin", ["app://obsidian.md", "chrome-extension://abc"])
def test_applications_that_are_pages_inside_can_be_named(start: Start, origin: str) -> None:
    settings = ServerSettings.checked(
        host="127.0.0.1",
        port=0,
        api_keys=(),
        served_model_names=(),
        chat_template=None,
        shutdown_timeout_s=0,
        max_body_size="1MiB",
        isolate_engine=False,
        log_level="warning",
        vllm_metrics=False,
        allowed_origins=[origin],
    )
    with start(allowed_origins=settings.allowed_origins).http(Origin=origin) as http:
        answer = http.get("/v1/models")
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin


def test_pages_without_an_origin_are_told_another_way(server: RunningServer) -> None:
    with server.http(Origin="null") as http:
        error = checked_error(http.get("/v1/models"), 403)
    assert "and that origin" not in error["message"]
    assert "http://" in error["message"]


@pytest.mark.parametrize(
    ("path", "settings", "status"),
    [
        ("/v1/completions", {"api_keys": ("secret",)}, 401),
        ("/v1/completions", {"max_body_bytes": 1000}, 413),
        ("/v1/nope", {}, 404),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_announced", [True, False])
def test_refusals_reach_clients_that_send_before_they_read(
    start: Start, path: str, settings: dict[str, Any], status: int, is_announced: bool
) -> None:
    """A client that is still sending when it is refused must not see a broken connection."""
    server = start(**settings)
    part = b"x" * 1_000_000
    connection = HTTPConnection("127.0.0.1", int(server.url.rsplit(":", 1)[1]), timeout=20)
    body = part * 16 if is_announced else iter([part] * 16)
    headers = {"Connection": "close", "Transfer-Encoding": "chunked"}
    headers = {"Connection": "close"} if is_announced else headers
    connection.request("POST", path, body, headers, encode_chunked=not is_announced)
    answer = connection.getresponse()
    assert answer.status == status
    assert json.loads(answer.read())["error"]["message"]
    connection.close()
