"""Quantized checkpoints as they are published, one file per format."""
