"""With weights quantized on load, greedy tokens are those of transformers with the same numbers."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES, Mode
from tests.parity.quantized_weights import precision, with_rounded_weights
from tests.support.engines import model_engine
from tests.support.setups import streamed as stream
from tests.support.setups import sweep_choice

from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.kernels import native
from tandem.kernels.open_pool import open_pool
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.weight_format import WeightFormat

FORMATS = [WeightFormat(8, 128), WeightFormat(4, 32), WeightFormat(4, 64), WeightFormat(4, 128)]
IDS = (
    "in-torch", "none-single", "none-batched", "none-chunked", "batched", "split", "exact-split",
    "exact-cohorts", "threaded-cohorts",
)  # fmt: skip
RUNS = [(mode, FORMATS[i % 4], s) for i, mode in enumerate(m for m in MODES if m.id in IDS) for s in
        ((), (0, 2)) if not (s and mode.setup.executor == "host")]  # fmt: skip


class Library:
    """The case in both implementations, by format."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._references: dict[WeightFormat, Reference] = {}
        self._pool = open_pool()

    def directory(self, format: WeightFormat) -> Path:
        return self._directory / str(format).replace(":", "-")

    def reference(self, format: WeightFormat) -> Reference:
        if format not in self._references:
            model = with_rounded_weights(self.directory(format), format)
            self._references[format] = Reference(model)
        return self._references[format]

    def model(self, format: WeightFormat, mode: Mode, streamed: tuple[int, ...]) -> Model:
        directory = self.directory(format)
        return load_model(
            directory,
            precision(directory, format),
            pool=self._pool if mode.compiled else None,
            layers=sweep_choice(stream(*streamed)),
        )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("quantized"))


@pytest.mark.parametrize(
    ("mode", "format", "streamed"),
    [pytest.param(m, f, s, id=f"{m.id}-{f}{'-streamed' if s else ''}") for m, f, s in RUNS],
)
def test_greedy_tokens_equal_transformers_with_the_same_numbers(
    mode: Mode, format: WeightFormat, streamed: tuple[int, ...], library: Library, ties: TieCount
) -> None:
    reference = library.reference(format)
    model = library.model(format, mode, streamed)
    with model_engine(model, replace(mode.setup, homes=stream(*streamed))) as engine:
        groups = (PROMPTS,) if mode.together else tuple((prompt,) for prompt in PROMPTS)
        made = [tokens for group in groups for tokens in generate(engine.core, group)]
        for prompt, tokens in zip(PROMPTS, made, strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()
        assert mode.happened(engine.stats)


@pytest.mark.skipif(not native.available(), reason="layers on disk need the compiled kernels")
@pytest.mark.parametrize("format", FORMATS[:2], ids=str)
def test_layers_on_disk_are_read_in_few_bits(
    format: WeightFormat, library: Library, ties: TieCount, tmp_path: Path
) -> None:
    reference, directory = library.reference(format), library.directory(format)
    model = load_model(
        directory,
        precision(directory, format),
        pool=open_pool(),
        disk=DiskPlacement((0, 2), "direct", (tmp_path,)),
    )
    assert (
        model.weights.disk_bytes
        == 2 * WeightSizes.of(model.spec, precision(directory, format)).layer
    )
    mode = next(mode for mode in MODES if mode.id == "none-batched")
    with model_engine(model, mode.setup) as engine:
        for prompt, tokens in zip(PROMPTS, generate(engine.core, PROMPTS), strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
    model.weights.close()
