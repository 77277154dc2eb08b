"""The engine in virtual time: the real scheduler and its programs on any hardware."""
