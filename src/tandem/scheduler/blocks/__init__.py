"""Requests of a batch job in blocks of equal batches, as an offline plan says."""
