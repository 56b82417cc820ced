"""The workload: Llama-2 with FSDP2, tensor and pipeline parallelism on one mesh, its data, and one training step.

Needs torch, but for `prepare` and what it is made of. Outside `measure` only the verbs that prepare data (`prepare`,
`gpu-check`) import from here.
"""
