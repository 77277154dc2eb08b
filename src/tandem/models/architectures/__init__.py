"""One file per architecture; each defines `ARCHITECTURE`."""
