"""The workload: Llama-2 with FSDP2, tensor and pipeline parallelism on one mesh, its data, and one training step.

Needs torch; nothing outside `measure` and `predict.extract` imports this package.
"""
