"""Recorded jobs: files of operations and traces, replayed and asked what if."""
