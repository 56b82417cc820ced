"""A reproducible paper-results pipeline for hardware scaling trends in distributed training."""

__version__ = "0.1.0"
