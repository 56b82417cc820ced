"""Submission: the run store with its claims, and the driver that starts ranks. No torch."""

from scaling_study.submit.data import prepared
from scaling_study.submit.store import RunStore
from scaling_study.submit.sweep import Driver, Monitor, check_writable

__all__ = ["Driver", "Monitor", "RunStore", "check_writable", "prepared"]
