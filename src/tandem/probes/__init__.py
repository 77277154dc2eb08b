"""Measurements of single things, shared by benchmarks and profiles: memory, disks, kernels."""
