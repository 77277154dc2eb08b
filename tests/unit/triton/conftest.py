"""Triton's interpreter runs the kernels where there is no GPU; they are imported after this."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
