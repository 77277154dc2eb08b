from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.candidate import candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.moves import Moves
from tandem.planner.sweep_load import Loads

MODEL = short(plannable_spec("opt-30b"), 9)
QUESTION = ask(MODEL, prompt="300", generate="100", requests=100)


def moves(*, in_time: bool) -> Moves:
    footprint = Footprint(QUESTION)
    pace = PromptPace(QUESTION, Loads(QUESTION.lengths))
    return Moves(Candidates(QUESTION, footprint), MODEL, pace, 1, in_time=in_time)


def test_whole_layers_on_the_cpu_give_way_to_as_many_bytes_of_mlps_and_back() -> None:
    share = Footprint(QUESTION).mlp_bytes / Footprint(QUESTION).layer_bytes
    assert 0.66 < share < 0.67
    whole = candidate_of("gpu-only", Elsewhere(on_cpu=3, how="cpu"), 1, 0)
    there = {each.elsewhere for each in moves(in_time=False).of(whole)}
    assert {Elsewhere(on_cpu=count, how="cpu-mlp") for count in (4, 5)} <= there
    mlps = whole.with_elsewhere(Elsewhere(on_cpu=5, how="cpu-mlp"))
    back = {each.elsewhere for each in moves(in_time=False).of(mlps)}
    assert {Elsewhere(on_cpu=count, how="cpu") for count in (3, 4)} <= back


def test_where_time_has_a_bound_other_numbers_of_rows_are_tried_than_have_room() -> None:
    here = candidate_of("ride-along", Elsewhere(), 28, 18)
    tried = set(moves(in_time=True).of(here))
    assert here._replace(host_rows=19) in tried
    assert here._replace(device_rows=30) in tried
    free = [each for each in moves(in_time=False).of(here) if each.elsewhere == Elsewhere()]
    footprint = Footprint(QUESTION)
    for each in free:  # nothing but as many as have room
        assert not footprint.fits(each._replace(device_rows=each.device_rows + 1)), each
