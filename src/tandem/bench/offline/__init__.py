"""Plans of batch jobs of every policy, executed on an emulated accelerator in virtual time."""
