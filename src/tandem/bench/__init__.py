"""Benchmarks: every figure beside the limit that it is held against."""
