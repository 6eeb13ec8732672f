"""Errors of predictions: error bars made of residuals, capabilities, many rows at once."""
