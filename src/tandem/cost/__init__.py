"""Time as pure functions of work and rates. Touches no device and reads no clock."""
