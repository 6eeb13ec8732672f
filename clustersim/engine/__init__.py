"""Replay a Program in simulated time."""
