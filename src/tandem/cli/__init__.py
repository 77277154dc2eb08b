"""The `tandem` command. Modules import what is heavy only when their command runs."""
