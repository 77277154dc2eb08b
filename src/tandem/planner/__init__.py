"""What to place where, decided by predicted time. Pure: no torch, no clock, no device."""
