"""Failures, checkpoints and goodput in closed form."""
