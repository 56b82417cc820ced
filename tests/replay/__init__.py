"""GPUs replayed: what NVML and torch.cuda say of V100, A100, H100 and H200, from a table, where no GPU is at hand.

The values are typical ones of each part from public documents and forum posts (clocks and limits of the data sheets,
what each driver supports by NVML's reference); none was read from a machine of ours. Everything between them and a
record is the code that runs on a real GPU.
"""
