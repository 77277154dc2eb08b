"""Frozen facts: models, requests, dtypes, units. Imports nothing else of Tandem."""
