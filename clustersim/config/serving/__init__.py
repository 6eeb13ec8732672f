"""Settings of serving scenarios."""
