"""Check a user's file, build the objects, run once, keep the run directory."""
