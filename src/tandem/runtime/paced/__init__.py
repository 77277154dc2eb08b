"""The emulated accelerator in paced mode: deadlines for the device, real work for the host."""
