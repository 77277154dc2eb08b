"""Interpreters of step programs: on devices, on the emulated accelerator. They choose nothing."""
