"""Programs that submit the same runs to Slurm, each in a process of its own: our driver, and plain submitit.

python -m benchmarks.submitters driver|jobs|arrays FOLDER
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from scaling_study.roofline import infeasible_because
from scaling_study.spec import Config, Platform, TrainingRun, encode_run, expand, run_id
from scaling_study.submit import RunStore, SlurmDriver
from scaling_study.submit.expected import expected_seconds
from scaling_study.submit.node import start_rank
from scaling_study.submit.slurm.request import Shape, parameters, settings_of, shape_of

RUNS = 300
_ROOT = Path(__file__).parents[1]
CONFIG = Config(_ROOT / "config")
_SWEEP = "fixed_batch_pretraining"
_POLL_S = 1.0


class Report(msgspec.Struct, frozen=True):
    """What a submitter says of itself when it ends.

    Attributes:
        peak_bytes: the most memory that it has had.
        torch: whether it has imported torch.
    """

    peak_bytes: int
    torch: bool


def platform() -> Platform:
    """The example of H100 nodes, looked at more often."""
    found = CONFIG.platform("slurm-h100")
    return msgspec.structs.replace(found, slurm=msgspec.structs.replace(settings_of(found), poll_s=_POLL_S))


def runs() -> list[TrainingRun]:
    """The first runs of the paper study's largest sweep that need not run out of memory."""
    expanded = expand(CONFIG.study("paper"), _SWEEP, CONFIG.catalogue)
    of_training = [run for run in expanded if isinstance(run, TrainingRun)]
    models, hardware = CONFIG.catalogue.models, CONFIG.catalogue.hardware
    fitting = [run for run in of_training if infeasible_because(run, models[run.model], hardware[run.hardware]) is None]
    return fitting[:RUNS]


def shapes() -> dict[Shape, list[TrainingRun]]:
    """The same by shape."""
    found: dict[Shape, list[TrainingRun]] = {}
    expected_s = expected_seconds(runs(), CONFIG.catalogue, CONFIG.root)
    for run in runs():
        shape = shape_of(run, platform(), CONFIG.catalogue.hardware[run.hardware], expected_s[run_id(run)])
        found.setdefault(shape, []).append(run)
    return found


def driver(folder: Path) -> None:
    """As the verb `measure` does, until it is interrupted."""
    from scaling_study import campaign  # all that the verb imports
    from scaling_study.console import SweepMonitor

    assert campaign
    expected_s = expected_seconds(runs(), CONFIG.catalogue, CONFIG.root)
    with SweepMonitor(runs(), _SWEEP, None) as monitor:
        ours = SlurmDriver(
            platform(), CONFIG.catalogue, RunStore(folder / "store"), folder / "data", monitor, expected_s
        )
        ours.check(runs())
        ours.measure(runs())


def jobs(folder: Path) -> None:
    """submitit with a job a run, nothing else."""
    _submit(folder, in_arrays=False)


def arrays(folder: Path) -> None:
    """submitit with an array a shape, nothing else: no claims, no ledger."""
    _submit(folder, in_arrays=True)


def _submit(folder: Path, *, in_arrays: bool) -> None:
    import submitit

    for shape, members in shapes().items():
        executor = submitit.SlurmExecutor(folder=folder / "jobs")
        told = {"nodes": shape.nodes, "ntasks_per_node": shape.tasks_per_node}  # as anybody would
        executor.update_parameters(**parameters(platform(), shape, "submission") | told)
        payloads = [encode_run(run).decode() for run in members]
        if in_arrays:
            executor.map_array(start_rank, payloads, [""] * len(payloads))
        else:
            for payload in payloads:
                executor.submit(start_rank, payload, "")


SUBMITTERS: dict[str, Callable[[Path], None]] = {"driver": driver, "jobs": jobs, "arrays": arrays}


def main(name: str, folder: Path) -> None:
    """Submit, and say what that took."""
    with contextlib.suppress(KeyboardInterrupt):
        SUBMITTERS[name](folder)
    report = Report(_peak_bytes(), "torch" in sys.modules)
    (folder / "report.json").write_bytes(msgspec.json.encode(report))


def _peak_bytes() -> int:
    """Of this program alone: what getrusage says begins with the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) * 1024


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
