"""Grids of runs: what to run, where it runs, and what came out as one table."""
