"""One rank of a run: train, observe, report. The node runs one function, `measure.rank.run_one`, of one run."""
