"""The best way to train a model on a cluster: search, certificate, goals."""
