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
