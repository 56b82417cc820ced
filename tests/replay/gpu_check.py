"""`scaling-study` with replayed GPUs: `python -m tests.replay.gpu_check gpu-check --output …`, for tests.

`SCALING_STUDY_REPLAY` names the GPUs. All but they is real: processes, training on the CPU, files, the model.
"""

import tests.replay.without  # noqa: F401, I001

from scaling_study import gpucheck
from scaling_study.cli import main
from scaling_study.spec import AttentionShape
from scaling_study.submit import local

local.SERVER = "tests.replay.server"
gpucheck.SHAPES = (AttentionShape(batch=1, tokens=24, heads=4, kv_heads=2, head_dim=16),)  # a CPU has little time

if __name__ == "__main__":
    main()
