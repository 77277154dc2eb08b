"""The engine loop and its front ends."""
