"""Peak rates and sources of devices, hosts, NICs and switches."""
