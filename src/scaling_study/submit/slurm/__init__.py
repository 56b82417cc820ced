"""Runs as Slurm jobs: states, commands, the ledger of what was submitted, and the driver. No torch."""

from scaling_study.submit.slurm.driver import SlurmDriver

__all__ = ["SlurmDriver"]
