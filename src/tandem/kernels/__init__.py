"""Maths on tensors: attention over paged KV, partial-state merging, KV pages, sampling.

The functions here are the announced reference kernels (torch): the oracle of native ones.
"""
