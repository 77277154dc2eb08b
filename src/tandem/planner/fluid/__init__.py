"""Virtual time: queues that run in order and share what they use at once."""
