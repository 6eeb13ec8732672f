"""Trace of a run: spans on (rank class, stream)."""
