"""From a configuration to an engine that runs: devices, models, and everything put together."""
