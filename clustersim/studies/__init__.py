"""Many runs: published results."""
