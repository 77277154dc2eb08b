"""How front ends talk to an engine: on a thread of their process, or in a process of its own."""
