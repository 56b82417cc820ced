"""Benchmarks against peers and limits; `python -m benchmarks --help`. Needs the extras train, dev and bench."""
