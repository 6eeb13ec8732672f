"""Kinds of layers that models other than transformers consist of: each gives its shape, and the operators of a pass."""
