"""Least times of a step in closed form, from the same prices as the replay."""
