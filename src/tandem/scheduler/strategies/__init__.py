"""Strategies: one file each, pure functions of a view (contract 13)."""
