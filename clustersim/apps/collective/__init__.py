"""The network model alone: single collectives, and files of flows."""
