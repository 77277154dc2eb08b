"""Recomputing a part of the KV cache while the rest crosses the link (KVPR)."""
