"""One run: simulated, measured, and written to its directory."""
