"""What a request may ask for, checked on arrival."""

from dataclasses import replace

import pytest
from tests.support.engines import TOY_VOCAB, toy_engine
from tests.support.script import run_all
from tests.support.setups import Setup
from tests.support.toy_maths import NAN_TOKEN

from tandem.spec.errors import RequestError
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams

PARAMS = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
SETUP = Setup(eos_ids=(7,))


def request(priority: int = 0, **changes: object) -> EngineRequest:
    return EngineRequest("r", (1, 2, 3), replace(PARAMS, **changes), priority)


@pytest.mark.parametrize(
    ("refused", "message", "param"),
    [
        (
            request(stop_token_ids=(3, TOY_VOCAB)),
            f"stop_token_ids token id {TOY_VOCAB} is outside the vocabulary of {TOY_VOCAB}",
            "stop_token_ids",
        ),
        (
            request(logit_bias=((TOY_VOCAB + 1, 1.0),)),
            f"logit_bias token id {TOY_VOCAB + 1} is outside",
            "logit_bias",
        ),
        (request(priority=2**23), "priority must be between -8388607 and 8388607", "priority"),
        (request(priority=-(2**23)), "priority must be between", "priority"),
        (
            request(stop_token_ids=tuple(range(TOY_VOCAB)), min_tokens=1),
            f"min_tokens forbids all {TOY_VOCAB} tokens of the vocabulary",
            "min_tokens",
        ),
        (
            request(
                stop_token_ids=tuple(i for i in range(TOY_VOCAB) if i != 7),
                min_tokens=1,
                ignore_eos=False,
            ),
            "min_tokens forbids all",
            "min_tokens",
        ),
    ],
)
def test_what_could_only_fail_is_refused_by_name(
    refused: EngineRequest, message: str, param: str
) -> None:
    with toy_engine(SETUP) as engine:
        with pytest.raises(RequestError, match=message) as error:
            engine.core.add_request(refused)
        assert error.value.param == param
        engine.check_idle()


def test_the_ends_of_the_ranges_are_served_in_their_order() -> None:
    with toy_engine(replace(SETUP, max_num_seqs=1)) as engine:
        last = replace(request(priority=2**23 - 1), request_id="last")
        first = replace(request(priority=1 - 2**23), request_id="first")
        ended: list[str] = []
        for each in (last, first):
            engine.core.add_request(each)
        while engine.core.has_work():
            ended += [o.request_id for o in engine.core.step() if o.finish_reason is not None]
        assert ended == ["first", "last"]


def test_without_a_least_length_every_token_may_be_an_end() -> None:
    with toy_engine(SETUP) as engine:
        result = run_all(engine.core, [request(stop_token_ids=tuple(range(TOY_VOCAB)))])["r"]
    assert result.finish_reason is FinishReason.STOP
    assert len(result.token_ids) == 1


def test_a_least_length_that_leaves_nothing_the_model_allows_is_named_as_the_cause() -> None:
    # the toy model never allows NAN_TOKEN, the only id that is no end here
    allowed = tuple(i for i in range(TOY_VOCAB) if i != NAN_TOKEN)
    with toy_engine(SETUP) as engine:
        result = run_all(engine.core, [request(stop_token_ids=allowed, min_tokens=1)])["r"]
        engine.check_idle()
    assert result.finish_reason is FinishReason.ERROR
    assert "either min_tokens forbids all that the model allows" in (result.error or "")
