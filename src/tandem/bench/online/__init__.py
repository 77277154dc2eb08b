"""Plans of every policy, executed on an emulated accelerator beside a real CPU."""
