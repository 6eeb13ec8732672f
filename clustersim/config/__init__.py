"""Check a user's file, build the objects, run once, write the run directory."""
