"""Weights, keys and values in a few bits, and what they mean (contract 9)."""
