"""Homes of layers as the linear programme tells them apart."""

from typing import Literal

from tandem.plan.weights import SLOTTED, Home

LayerHome = Home | Literal["streamed-mlp"]
"""Of layers of home `host-mlp`: `host-mlp` are those whose MLP the CPU computes where no prompt is
read, `streamed-mlp` the others.
"""
MLPS_STREAMED: tuple[LayerHome, ...] = ("host-mlp", "streamed-mlp")
THROUGH_SLOTS: tuple[LayerHome, ...] = (*SLOTTED, "streamed-mlp")
