"""Files of requests, run to their ends whatever happens on the way."""
