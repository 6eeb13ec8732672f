"""Scenarios of inference serving: from the file to the result."""
