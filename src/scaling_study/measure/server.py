"""What the server that forks ranks imports before the first fork, and that it ends with its driver.

multiprocessing's server looks whether its driver lives only once these imports are done; Linux tells it at once.
"""

from scaling_study.processes import end_with_parent

end_with_parent()

import torch.distributed.pipelining  # noqa: E402, F401

import scaling_study.measure.collective  # noqa: E402
import scaling_study.measure.rank  # noqa: E402
import scaling_study.measure.training  # noqa: E402, F401
