"""A scenario in many cases: sweeps, what-ifs and questions, from one kind of file."""
