import pytest

from tandem.spec.errors import ConfigError
from tandem.spec.workload import Workload, drawn_workload
from tandem.spec.workload_file import known_workloads, load_lengths


@pytest.mark.parametrize("name", known_workloads())
def test_every_packaged_workload_can_be_drawn(name: str) -> None:
    lengths = load_lengths(name)
    drawn = drawn_workload(lengths.prompt, lengths.generate, 50, name=lengths.name)
    assert drawn.name == f"50 requests of {lengths.name}"


@pytest.mark.parametrize(
    ("name", "prompt", "generated"),
    [
        ("azure-code", (2048, 1469), (28, 13)),  # mean and median of the traces
        ("azure-conversation", (1155, 1020), (211, 129)),
        ("park-egger", (512, 512), (32, 32)),
    ],
)
def test_drawn_lengths_have_the_published_means_and_medians(
    name: str, prompt: tuple[int, int], generated: tuple[int, int]
) -> None:
    lengths = load_lengths(name)
    drawn = drawn_workload(lengths.prompt, lengths.generate, 20_000)
    prompts = [request.prompt_tokens for request in drawn.requests]
    outputs = [request.generated_tokens for request in drawn.requests]
    # what is cut at the longest lowers the mean a little
    assert mean_and_median(prompts) == pytest.approx(prompt, rel=0.06)
    assert mean_and_median(outputs) == pytest.approx(generated, rel=0.06)


def test_azure_prompts_are_no_longer_than_the_traces() -> None:
    lengths = load_lengths("azure-code")
    drawn: Workload = drawn_workload(lengths.prompt, lengths.generate, 5_000)
    assert max(request.prompt_tokens for request in drawn.requests) == 7437


def test_a_name_may_be_in_any_case() -> None:
    assert load_lengths("Azure-Code") == load_lengths("azure-code")


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown workload 'azure'; use one of apex-1000, azure"):
        load_lengths("azure")


def mean_and_median(lengths: list[int]) -> tuple[float, int]:
    return sum(lengths) / len(lengths), sorted(lengths)[len(lengths) // 2]
