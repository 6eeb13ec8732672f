"""How wrong predictions are: error bars made of residuals, capabilities, many rows at once."""
