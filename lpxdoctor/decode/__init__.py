"""Target in, verdict out: timed streaming requests, statistics, profile."""
