"""OpenAI's objects: request schemas, answers and errors; knows nothing of HTTP libraries."""
