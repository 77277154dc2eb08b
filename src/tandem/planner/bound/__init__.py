"""Bounds of sweeps by closed forms: less than which none takes."""
