"""Pictures and pages of runs that are named on the command line."""
