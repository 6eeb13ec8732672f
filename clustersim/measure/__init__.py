"""Metrics of a timeline, and lower bounds of a step."""
