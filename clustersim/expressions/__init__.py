"""Expressions over named metrics: ``mfu >= 0.4 and cost.training.usd < 12 MUSD``; parsed, never evaluated as code."""
