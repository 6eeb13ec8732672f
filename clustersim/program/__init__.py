"""The vocabulary of work, without durations."""
