"""Offloading with quantized tensors, and threads for its tasks (LM-Offload)."""
