import json
from pathlib import Path

import pytest

from tandem.spec.errors import ConfigError
from tandem.spec.trace_file import read_trace
from tandem.spec.workload import RequestShape, Workload, arriving

ESTIMATED = "t.json: tokens estimated as 4 characters each"


def read(folder: Path, *entries: object) -> Workload:
    path = folder / "t.json"
    path.write_text(json.dumps(entries), "utf-8")
    return read_trace(path)


def talk(*turns: tuple[str, object]) -> dict[str, object]:
    return {"conversations": [{"from": role, "value": value} for role, value in turns]}


def counted(prompt: int, generated: int, **more: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "generated_tokens": generated, **more}


def test_of_conversations_the_first_exchange_is_read_and_those_without_are_counted(
    tmp_path: Path,
) -> None:
    made = read(
        tmp_path,
        talk(("human", "a" * 400), ("gpt", "b" * 80), ("human", "c"), ("gpt", "d" * 4000)),
        talk(("system", "s" * 800), ("user", "a" * 40), ("assistant", "b" * 8)),
        talk(("gpt", "a" * 12), ("human", "b" * 16), ("gpt", "c" * 20)),
        talk(("gpt", "a"), ("human", "b")),
        talk(("human", ""), ("gpt", "b")),
        talk(("human", "a"), ("human", "b"), ("gpt", "c")),
        talk(),
    )
    assert made.requests == (RequestShape(100, 20), RequestShape(10, 2), RequestShape(4, 5))
    assert made.notes == (ESTIMATED, "t.json: 3 of 7 conversations, first exchanges only")


def test_conversations_none_of_which_is_of_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none of its 2 conversations has a text of 'human'"):
        read(tmp_path, talk(("gpt", "a"), ("human", "b")), talk(("human", "b")))


def test_entries_have_numbers_of_tokens_and_may_have_times(tmp_path: Path) -> None:
    assert read(tmp_path, counted(5, 6)) == Workload("trace t.json", (RequestShape(5, 6),))
    timed = read(tmp_path, counted(5, 6, timestamp=12.5), counted(7, 8, timestamp="10"))
    assert timed == Workload(
        "trace t.json", (RequestShape(7, 8), RequestShape(5, 6, 2.5)), timed=True
    )
    dated = read(
        tmp_path,
        counted(5, 6, timestamp="2023-11-16 18:15:46.5"),
        counted(7, 8, timestamp="2023-11-16T18:15:47Z"),
    )
    assert [request.arrival_s for request in dated.requests] == [0, 0.5]
    spoken = read(tmp_path, {**talk(("human", "a" * 8), ("gpt", "b" * 8)), "timestamp": 3})
    assert (spoken.requests, spoken.timed) == ((RequestShape(2, 2),), True)


def test_requests_without_an_output_are_left_out_and_counted(tmp_path: Path) -> None:
    made = read(
        tmp_path,
        counted(5, 0, timestamp=1),
        counted(5, 6, timestamp=3),
        counted(5, 7, timestamp=4),
    )
    assert made.requests == (RequestShape(5, 6), RequestShape(5, 7, 1.0))
    assert made.notes == ("t.json: 1 of 3 requests generate no token: left out",)


def test_each_line_may_be_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    # JSON may hold U+2028 as it is, which is no end of a line.
    spoken = json.dumps(talk(("human", "a\u2028bc"), ("gpt", "b" * 8)), ensure_ascii=False)
    path.write_text(f"{json.dumps(counted(5, 6))}\n\n{spoken}\n", "utf-8")
    assert read_trace(path).requests == (RequestShape(5, 6), RequestShape(1, 2))
    path.write_text(f"{spoken}\n\n{json.dumps(counted(5, -6))}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"line 3: generated_tokens must be .* from 0 .* not -6"):
        read_trace(path)


def test_what_has_no_times_may_come_at_a_rate(tmp_path: Path) -> None:
    waiting = read(tmp_path, *(counted(number, 1) for number in range(1, 2001)))
    coming = arriving(waiting, 4.0, seed=1)
    assert [shape.prompt_tokens for shape in coming.requests] == list(range(1, 2001))
    assert coming.duration_s == pytest.approx(500, rel=0.1)
    assert coming == arriving(waiting, 4.0, seed=1) != arriving(waiting, 4.0, seed=2)
    timed = read(tmp_path, counted(5, 6, timestamp=1))
    with pytest.raises(
        ConfigError, match=r"trace t\.json has arrival times of its own.* leave the"
    ):
        arriving(timed, 4.0, seed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "line 1 has neither 'conversations' nor 'prompt_tokens'"),
        ("[1]", "entry 1 is no object"),
        ("[{", "not JSON .*; mend it"),
        ('{"a": 1}\n{', "line 1 has neither"),
        (
            '{"prompt_tokens": 5, "generated_tokens": 1}\n{',
            "line 2: not JSON .*; one object a line",
        ),
        ('{\n"prompt_tokens": 5}', "line 1: not JSON .*; one object a line, or a list of all"),
        ('[{"prompt_tokens": 5}]', "entry 1 has neither 'conversations' nor 'generated_tokens'"),
        ('[{"prompt_tokens": true, "generated_tokens": 1}]', "entry 1: prompt_tokens must be"),
        ('[{"conversations": "hi"}]', "entry 1: 'conversations' must be a list"),
        (json.dumps([talk(("user", "a"), ("gpt", 5))]), "entry 1: a turn's 'value' must .* not 5"),
        (json.dumps([talk(("user", None), ("gpt", "b"))]), "'value' must be text, not None"),
        ("[]", "holds no request"),
        (json.dumps([counted(5, 0)] * 2), "none of its 2 requests generates a token; give one"),
        (json.dumps([counted(5, 1, timestamp=1), counted(5, 1)]), "entry 2 has no 'timestamp'"),
        (json.dumps([counted(5, 1), counted(5, 1, timestamp=1)]), "entry 2 has a 'timestamp', and"),
        (json.dumps([counted(5, 1, timestamp=None)]), "entry 1: timestamp None is neither a date"),
        (json.dumps([counted(5, 1, timestamp=True)]), "entry 1: timestamp True is neither a date"),
        (json.dumps([counted(5, 1, timestamp=-1)]), "entry 1: timestamp -1 is neither a date"),
        (json.dumps([counted(5, 1, timestamp=1e13)]), "entry 1: timestamp 1.* is neither a date"),
        ('[{"prompt_tokens": 5, "generated_tokens": 1, "timestamp": NaN}]', "timestamp nan is"),
        (json.dumps([counted(5, 1, timestamp="2023-02-31 00:00:00")]), "is no date with time"),
        (
            '[{"prompt_tokens": 5, "generated_tokens": %s}]' % ("9" * 5000),
            r"entry 1: generated_tokens must be a whole number from 0 to 10000000, not '9+\.\.\.",
        ),
        ('[{"prompt_tokens": -5, "generated_tokens": 1}]', "entry 1: prompt_tokens must .* not -5"),
        ('[{"prompt_tokens": 1e999, "generated_tokens": 1}]', "entry 1: prompt_tokens must be"),
        ('[{"prompt_tokens": 10000001, "generated_tokens": 1}]', "entry 1: prompt_tokens must be"),
    ],
    ids=lambda text: text[:40],
)
def test_malformed_json_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message) as error:
        read_trace(path)
    assert len(error.value.message) < 400
