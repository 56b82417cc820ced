"""Imported first: from here on, packages that a check of GPUs must do without cannot be imported."""

import sys

for name in ("altair", "datasets", "snakemake", "submitit", "tokenizers", "typst", "vl_convert", "xformers"):
    sys.modules[name] = None  # type: ignore[assignment]
