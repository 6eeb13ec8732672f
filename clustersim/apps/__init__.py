"""Many runs: published results, and comparisons that answer a question."""
