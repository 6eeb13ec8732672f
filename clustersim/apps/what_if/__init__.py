"""Comparison of cases with a base: where they break even, and how sure the decision between them is."""
