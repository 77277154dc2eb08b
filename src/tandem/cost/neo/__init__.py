"""Asymmetric pipelining and load-aware scheduling (NEO)."""
