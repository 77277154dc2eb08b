"""When to pipeline, and what asynchronous overlap can gain (APEX)."""
