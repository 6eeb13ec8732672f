"""Many runs of one scenario with some of its keys varied: which points there are, who runs them, and what is kept."""
