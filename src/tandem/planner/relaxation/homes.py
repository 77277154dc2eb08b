"""Homes of layers as the linear programme tells them apart."""

from typing import Literal

from tandem.plan.weights import SLOTTED, Home

SharedHome = Literal["experts", "experts-cpu", "experts-streamed", "experts-host"]
LayerHome = Home | Literal["streamed-mlp"] | SharedHome
"""Of layers of home `host-mlp`: `host-mlp` are those whose MLP the CPU computes where no prompt is
read, `streamed-mlp` the others. Of mixtures that are all elsewhere in part, shares of their
experts: `experts` are resident, the others as `cpu-mlp`, `streamed-mlp` and `host-mlp`.
"""
SHARED: tuple[SharedHome, ...] = ("experts", "experts-cpu", "experts-streamed", "experts-host")
MLPS_STREAMED: tuple[LayerHome, ...] = ("host-mlp", "streamed-mlp")
EXPERTS_STREAMED: tuple[SharedHome, ...] = ("experts-streamed", "experts-host")
THROUGH_SLOTS: tuple[LayerHome, ...] = (*SLOTTED, "streamed-mlp", *EXPERTS_STREAMED)
