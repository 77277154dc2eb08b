"""What was measured on a machine, and its file. Pure: no torch, no clock."""
