"""Maths on tensors: attention over paged KV, partial-state merging, KV pages, sampling.

The torch functions are the announced reference kernels: the oracle of the compiled ones
(`native*`), and what runs where those could not be built.
"""
