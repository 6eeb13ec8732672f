"""What happened: spans on (rank class, stream)."""
