"""Running cost of a cluster, and frequency of its standstills: closed forms, in SI units."""
