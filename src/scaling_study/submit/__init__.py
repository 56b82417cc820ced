"""Submission: the run store with its claims, and the driver that starts ranks. No torch."""

from scaling_study.submit.checks import check_writable
from scaling_study.submit.data import prepared
from scaling_study.submit.monitor import Monitor
from scaling_study.submit.slurm import SlurmDriver
from scaling_study.submit.store import RunStore
from scaling_study.submit.sweep import Driver

__all__ = ["Driver", "Monitor", "RunStore", "SlurmDriver", "check_writable", "prepared"]
