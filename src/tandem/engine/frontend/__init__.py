"""The text side of requests: tokens to text and back, chat templates, stop strings."""
