"""One module per command: a dataclass of options, and what it does."""
