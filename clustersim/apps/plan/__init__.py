"""The fastest layout for a model on a cluster: search, certificate, goals."""
