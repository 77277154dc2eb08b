"""Programs of paced runs, executed exactly with a small model, tokens compared."""
