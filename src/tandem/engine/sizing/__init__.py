"""What an engine decides before it loads: how large everything is, and where it lies."""
