"""Inference serving: queues, batches, the KV cache and the time of an engine step."""
