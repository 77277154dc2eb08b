"""What is known of strategies by their names, without importing them."""

_PUBLISHED = ("neo-published", "apex-published")

STRATEGIES = (
    "auto", "gpu-only", "ride-along", "rendezvous", "rendezvous-ahead", "asymmetric", "symmetric",
    "neo", "apex", *_PUBLISHED,
)  # fmt: skip

COHORT_STRATEGIES = (
    "rendezvous", "rendezvous-ahead", "asymmetric", "symmetric", "neo", "apex", *_PUBLISHED,
)  # fmt: skip
"""They start cohorts, whatever else they do; `auto` may."""

PASS_STRATEGIES = ("asymmetric", "symmetric", "auto", "neo", "apex", *_PUBLISHED)
"""Their cohorts may have passes of their own between the layers."""

PRICED_STRATEGIES = ("auto", "neo", "apex", *_PUBLISHED)
"""They choose by what steps are predicted to take."""

RESIDENT_STRATEGIES = ("asymmetric", "symmetric", "neo", "neo-published")
"""They mean nothing where a layer is not on the accelerator."""

_ONE_COHORT_AT_A_TIME = ("rendezvous", "rendezvous-ahead")
_PROMPTS = 1  # of those read to their ends beside all decodes and a cohort: one always goes on


def most_sampled_rows(strategy: str, rows: int, device_rows: int, cohort_rows: int) -> int:
    """Of rows that run at once, where those on the host are in cohorts, and no other ones: those on
    the accelerator, and a cohort that comes to its last layer. Two of them never do in one sweep.

    Args:
        rows: that run at once. device_rows: of them, on the accelerator at most; 0: any number.
        cohort_rows: of one cohort, at most.
    """
    if strategy not in _ONE_COHORT_AT_A_TIME or not device_rows:
        return rows
    return min(rows, device_rows + cohort_rows + _PROMPTS)
