"""Frozen decisions: programs, events, placements, and the validator. No torch."""
