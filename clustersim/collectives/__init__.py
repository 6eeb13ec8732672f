"""Collective operations: what each link must carry, and the latency steps on the way."""
