"""Both engines of the host bench compute the same model."""

import random
from pathlib import Path

from tandem.bench.host_case import HostCase
from tandem.bench.host_model import LlamaShape
from tandem.bench.host_throughput import HostBench, measure_host
from tandem.bench.tandem_generation import TandemGenerator
from tandem.bench.transformers_generation import TransformersGenerator
from tandem.spec.dtype import DType

TINY = LlamaShape("tiny Llama shape", 32, 2, 4, 2, 48, 97)


def test_both_engines_give_the_same_tokens_and_their_times(tmp_path: Path) -> None:
    TINY.write(tmp_path, DType.FLOAT32)
    draw = random.Random(0)
    prompts = [draw.choices(range(97), k=5) for _ in range(3)]
    ours = TandemGenerator(tmp_path, max_rows=3)
    mine = ours.generate(prompts, 8)
    ours.close()
    theirs = TransformersGenerator(tmp_path).generate(prompts, 8)
    assert mine.token_ids == theirs.token_ids
    assert all(len(ids) == 8 for ids in mine.token_ids)
    for run in (mine, theirs):
        assert run.first_s > 0
        assert run.decode_tokens_per_s == 3 * 7 / run.decode_s


def test_rows_compare_the_engines_under_one_bound() -> None:
    cases = (HostCase(2, 4, 3), HostCase(1, 16, 1, decode=False))
    rows = measure_host(HostBench(TINY, DType.FLOAT32, cases, rounds=2), lambda what: None)
    for case, metric in ((0, "decode throughput"), (1, "prefill throughput")):
        mine = [row for row in rows if str(cases[case]) in row.case]
        rates = {row.variant: row for row in mine if row.metric == metric}
        assert set(rates) == {"tandem", "transformers"}
        assert rates["tandem"].bound == rates["transformers"].bound
        by_metric = {row.metric: row for row in mine}
        assert by_metric["tokens equal to transformers"].value == 1.0
        assert by_metric[f"{metric} over transformers"].bound == 1.0
