"""Whole batch jobs on the host alone, beside transformers' generate."""
