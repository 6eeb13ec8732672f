"""Max-min fair sharing of links among flows in flight."""
