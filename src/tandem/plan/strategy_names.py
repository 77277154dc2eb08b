"""What is known of strategies by their names, without importing them."""

STRATEGIES = (
    "auto", "gpu-only", "ride-along", "rendezvous", "asymmetric", "symmetric", "neo", "apex",
)  # fmt: skip

COHORT_STRATEGIES = ("rendezvous", "asymmetric", "symmetric", "neo", "apex")
"""They start cohorts, whatever else they do; `auto` may."""

PASS_STRATEGIES = ("asymmetric", "symmetric", "auto", "neo", "apex")
"""Their cohorts may have passes of their own between the layers."""

PRICED_STRATEGIES = ("auto", "neo", "apex")
"""They choose by what steps are predicted to take."""

RESIDENT_STRATEGIES = ("asymmetric", "symmetric", "neo")
"""They mean nothing where a layer is not on the accelerator."""
