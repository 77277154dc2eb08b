"""Jobs whose requests are all there at once: which plan ends first, whatever is steadily faster."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask

from tandem.memory.growth_reserve import growth_reserve
from tandem.planner.answer import answer, choose, online_plan
from tandem.planner.candidate import Candidate
from tandem.planner.in_step import InStep, is_in_step, live_through
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES, Policy
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import with_steps_that_fit
from tandem.planner.wave_changes import WaveChanges
from tandem.simulator.build import Planned
from tandem.simulator.simulate import simulate
from tandem.spec.units import GIB
from tandem.spec.workload import drawn_workload, parse_lengths

AUTO, GPU_ONLY = POLICIES["auto"], POLICIES["gpu-only"]
# one place less than requests: the last would run by itself once all others have ended
SPARE = ask("mistral-small-24b", "rtx3090", "server-genoa", prompt="64", generate="16", requests=60)
WAVES = ask("llama-3.1-8b", "a100-40", prompt="200", generate="200", requests=400)
LONG = ask("llama-3.2-1b", "a10g", prompt="128", generate="1000", requests=200)


def searched(question: Question) -> Search:
    steps = (128, 256, 512, 1024, 2048, 4096, 8192)
    return Search(with_steps_that_fit(replace(question, step_sizes=steps), AUTO))


def simulated_s(search: Search, policy: str) -> float:
    option = choose(search, POLICIES[policy])
    plan, lengths = online_plan(search, option), search.question.lengths
    workload = drawn_workload(
        parse_lengths(f"{lengths.prompt_tokens:.0f}", "prompt"),
        parse_lengths(f"{lengths.generated_tokens:.0f}", "generate"),
        lengths.requests,
    )
    took_s = simulate(Planned(search.question, option, plan), workload).duration_s
    assert took_s == pytest.approx(live_through(search, option).job_s, rel=0.06)
    return took_s


@pytest.mark.parametrize("question", [SPARE, WAVES, LONG], ids=["spare", "waves", "long"])
def test_no_policy_s_job_ends_before_that_of_auto(question: Question) -> None:
    search = searched(question)
    assert simulated_s(search, "auto") <= 1.02 * simulated_s(search, "gpu-only")


def test_the_choice_ends_before_the_plan_that_is_steadily_fastest() -> None:
    search = searched(SPARE)
    steady, chosen = search.choice(AUTO), choose(search, AUTO)
    assert steady is not None
    assert live_through(search, steady).job_s > 1.2 * live_through(search, chosen).job_s
    places = online_plan(search, chosen).max_num_seqs
    assert places == SPARE.lengths.requests  # none is left for another wave


def test_requests_come_in_even_waves() -> None:
    search = searched(WAVES)
    chosen, steady = choose(search, GPU_ONLY), search.choice(GPU_ONLY)
    assert steady is not None
    assert WAVES.lengths.requests % steady.candidate.rows
    assert WAVES.lengths.requests % chosen.candidate.rows == 0


def test_a_choice_is_told_before_policies_that_come_near_are_searched_by_themselves() -> None:
    told, alone_too = list[Option](), list[str]()

    class Noting(Search):
        def choice(self, policy: Policy, *, alone: bool = False) -> Option | None:
            if alone:
                assert told
                alone_too.append(policy.name)
            return super().choice(policy, alone=alone)

    question = replace(WAVES, device_bytes=20 * GIB)
    chosen = InStep(Noting(question)).choice(AUTO, told.append)
    assert alone_too
    assert chosen is not None
    assert chosen == InStep(Search(question)).choice(AUTO)
    assert len(told) == 1
    assert told[0].tokens_per_s >= 0.99 * chosen.tokens_per_s


def test_what_comes_over_time_or_alone_is_chosen_by_its_steady_state() -> None:
    coming = replace(WAVES, lengths=replace(WAVES.lengths, duration_s=100.0))
    for question in (coming, replace(WAVES, objective="latency")):
        assert not is_in_step(question)
        search = Search(question)
        found = InStep(search).choice(AUTO)
        assert found == search.choice(AUTO)
        assert found is not None
        assert found.in_step_per_s is None


def test_all_that_is_compared_is_of_the_job_in_step() -> None:
    found = answer(replace(WAVES, device_bytes=20 * GIB), compare=True)
    options = [found.chosen, *found.alternatives]
    options += [result.option for result in found.policies if result.option]
    options += [entry.option for entry in found.sensitivities]
    assert all(option.in_step_per_s == option.tokens_per_s for option in options)
    assert found.job_tokens_per_s == pytest.approx(found.chosen.tokens_per_s)
    best = max(result.option.tokens_per_s for result in found.policies if result.option)
    assert best <= 1.011 * found.chosen.tokens_per_s
    assert min(entry.gain for entry in found.sensitivities) >= -1e-9


@pytest.mark.parametrize(
    "question",
    [
        ask("llama-3.1-8b", "t4", prompt="100", generate="100", requests=60),
        ask("llama-3.1-8b", "a4000", prompt="64", generate="200", requests=60),
    ],
    ids=["t4", "a4000"],
)
def test_no_policy_finds_more_of_the_job_than_auto(question: Question) -> None:
    """Neither beside it, nor by itself; and no larger machine's plan is worse."""
    question = replace(question, step_sizes=(128, 256, 512, 1024, 2048, 4096, 8192))
    found = answer(question, compare=True)
    plain = answer(question)
    rows = {result.policy.name: result.option for result in found.policies}
    for chosen in (found.chosen, plain.chosen):
        for option in rows.values():
            assert option is None or option.tokens_per_s * 0.99 <= chosen.tokens_per_s * (1 + 1e-9)
        for name in ("ride-along", "simple", "n-gpu-layers"):
            alone = choose(Search(with_steps_that_fit(question, POLICIES[name])), POLICIES[name])
            assert alone.tokens_per_s * 0.99 <= chosen.tokens_per_s * (1 + 1e-9), name
    assert rows["auto"] == found.chosen  # one figure for one plan
    for entry in plain.sensitivities:
        assert entry.gain >= -0.01
        assert entry.base.tokens_per_s >= plain.job_tokens_per_s * (1 - 1e-9)
        assert entry.base.tokens_per_s * 0.99 <= plain.job_tokens_per_s * (1 + 1e-9)


def test_requests_that_the_accelerator_holds_are_not_divided() -> None:
    """An engine divides none whose KV the accelerator's pool holds, so no plan may count on it."""
    search = Search(ask("opt-66b", "rtx4090", requests=50))
    candidate = search.best(AUTO)
    assert candidate is not None
    found = candidate.candidate._replace(
        strategy="ride-along", device_rows=0, host_rows=20, device_share=0.2, prompts_here=0
    )
    assert search.footprint.device_blocks(found) >= search.footprint.longest_blocks
    assert not search.footprint.fits(found)


@pytest.mark.parametrize(
    "start",
    [
        Candidate("asymmetric", 0, 1, 30, passes=8),
        Candidate("asymmetric", 0, 1, 30, passes=8, prompts_here=2),
        Candidate("rendezvous-ahead", 0, 1, 30),
    ],
    ids=["passes", "prompts-here", "ahead"],
)
def test_cohorts_without_rows_beside_them_neither_pass_nor_go_ahead(start: Candidate) -> None:
    """Even waves of a plan that just fits leave the accelerator no request."""
    question = ask(prompt="100", generate="100", requests=64)
    used = Search(question).footprint.uses(start)[0]
    tight = replace(question, device_bytes=question.device_bytes - used.free_bytes)
    search = Search(tight)
    changes = WaveChanges(tight, search.footprint).of(start)
    changed = [each for each in changes if search.footprint.fits(each)]
    alone = [each for each in changed if not each.device_rows]
    assert alone
    for each in alone:
        assert (each.strategy, each.passes) == ("rendezvous", 0)
        assert each.sweeps_per_hosted_token(32) == 34  # one cohort, with nothing beside it
        assert search.tried(each, AUTO) is not None
        assert search.tried(each._replace(strategy=start.strategy, passes=8), AUTO) is None


def test_requests_that_never_outgrow_their_prompt_s_blocks_fill_the_pool() -> None:
    """An engine keeps nothing free for them, and neither does a plan."""
    question = ask(prompt="300", generate="20", requests=400, device_bytes=int(16.6 * GIB))
    search = Search(question)
    plan = online_plan(search, choose(search, GPU_ONLY))
    left = plan.device_blocks - plan.max_num_seqs * search.footprint.longest_blocks
    assert 0 <= left < growth_reserve(plan.max_num_seqs - 1, plan.device_blocks)
    simulated_s(search, "gpu-only")  # as long as predicted


def test_what_is_found_later_is_chosen_as_what_was_found_first_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simplest of those within 1% of the best, whichever comes to be known when."""
    search = Search(ask(prompt="100", generate="100", requests=64))
    in_step = InStep(search)

    def option(streamed: int, rate: float, rows: int = 20) -> Option:
        candidate = Candidate("gpu-only", streamed, rows, 0)
        found = search.tried(candidate, AUTO)
        assert found is not None
        return replace(found, in_step_per_s=rate)

    def better(chosen: Option, *others: Option) -> Option | None:
        rates = {each.candidate: each.in_step_per_s for each in others}
        monkeypatch.setattr(
            in_step,
            "closely",
            lambda found: replace(found, in_step_per_s=rates[found.candidate]),
        )
        return in_step.better(chosen, AUTO, rates)

    simple, plain = option(0, 99.5), option(20, 100.0)
    assert better(plain, simple) == simple
    assert better(simple, plain) is None
    assert better(plain, faster := option(0, 100.6)) == faster
    assert better(simple, option(20, 101.5)) == option(20, 101.5)
    assert better(plain, option(0, 98.5)) is None
    # a time per token that is shorter by what predictions do not tell is not told anew
    shorter = option(20, 100.5, rows=19)
    assert 0.99 < shorter.prediction.rates.worst_tpot_s / plain.prediction.rates.worst_tpot_s < 1
    assert better(plain, shorter) is None
    assert better(plain, much_faster := replace(shorter, in_step_per_s=102.0)) == much_faster
    # beside a faster one, the simplest is too slow
    assert better(plain, simple, option(10, 101.0)) == option(10, 101.0)


def test_what_other_policies_find_takes_no_place_among_the_finalists_of_one() -> None:
    in_step = InStep(Search(ask(accelerator="t4", prompt="100", generate="100", requests=60)))
    alone = in_step.choice(GPU_ONLY)
    assert alone is not None
    faster = in_step.choice(AUTO)  # as where policies are compared
    assert faster is not None
    assert faster.tokens_per_s > 1.2 * alone.tokens_per_s
    finalists = in_step.finalists(GPU_ONLY)
    assert alone in finalists
    assert all(not each.candidate.host_rows for each in finalists)
