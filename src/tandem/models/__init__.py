"""Decoder models: architectures as data, weights, and execution of stages of a layer."""
