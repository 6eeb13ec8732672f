"""Say what a device, host, NIC or switch can do at best, and which source says so."""
