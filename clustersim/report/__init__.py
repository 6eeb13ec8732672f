"""Reduce a timeline to metrics; write tables, traces, plots and summaries. Importing it stays light."""
