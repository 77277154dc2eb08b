"""Block and byte accounting as pure integers: pages, pools, prefix cache, ledger, sizing."""
