"""Pages of results: one file with everything in it, which opens without a network."""
