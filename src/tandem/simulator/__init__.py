"""The engine in virtual time: the real scheduler and its programs, on hardware that need not be there."""
