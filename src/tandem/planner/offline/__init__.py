"""Plans of offline batches: a zig-zag block schedule, every lever at once or as a policy allows."""
