"""Links shared among what is in flight."""
