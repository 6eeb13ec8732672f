"""What a cluster costs to run, and how often it stands still: closed forms, in SI units."""
