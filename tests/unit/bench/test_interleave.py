from tandem.probes.interleave import interleave, paired_ratio


def test_variants_take_turns_after_a_warm_up() -> None:
    calls: list[str] = []

    def measure(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    samples = interleave({"a": lambda: measure("a"), "b": lambda: measure("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert samples == {"a": (3.0, 5.0), "b": (4.0, 6.0)}


def test_noise_that_both_meet_leaves_the_ratio_alone() -> None:
    noise = [1.0, 4.0, 0.5, 2.0, 3.0, 1.5, 0.7]
    ratio = paired_ratio([1.2 * n for n in noise], noise)
    assert abs(ratio.median - 1.2) < 1e-9
    assert ratio.lower_95 is not None
    assert abs(ratio.lower_95 - 1.2) < 1e-9


def test_a_doubtful_lead_has_a_lower_limit_below_one() -> None:
    ratio = paired_ratio([1.3, 0.8, 1.1, 1.2, 0.7, 1.05, 0.9], [1.0] * 7)
    assert ratio.median == 1.05
    assert ratio.lower_95 is not None
    assert ratio.lower_95 < 1
    assert ratio.spread == (0.7, 1.3)


def test_fewer_than_three_pairs_have_no_limit() -> None:
    assert paired_ratio([1.0], [2.0]).lower_95 is None
    assert paired_ratio([1.0, 1.1], [2.0, 2.0]).lower_95 is None
    assert paired_ratio([1.0, 1.1, 0.9], [2.0] * 3).lower_95 == 0.45
