"""Times that a profile measured, for one model, and where predictions leave what it measured."""
