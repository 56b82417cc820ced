"""A check of a platform's nodes, as one short job over them; without Slurm, as ranks on this machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from scaling_study.errors import UserError, write_atomically
from scaling_study.spec import AttemptFiles, Executor, Hardware, NodeCheck, Platform, RankHealth
from scaling_study.submit import node
from scaling_study.submit.health import HealthReport, health_report
from scaling_study.submit.slurm import nodes
from scaling_study.submit.slurm.commands import Job, Slurm
from scaling_study.submit.slurm.request import Shape, parameters, settings_of, tasks_a_node
from scaling_study.submit.slurm.states import Phase
from scaling_study.submit.slurm.submission import TryLaterError, new_name, sbatch
from scaling_study.submit.slurm.tasks import first_ends, read_log
from scaling_study.submit.verdict import utc_now
from scaling_study.submit.version import code_digest, code_version

_LOCAL_RANKS = {"cpu": 2, "gpu": 1}
_LOCAL_LIMIT_MIN = 10
_CHECK_MIN = 5
_GRACE_S = 5.0
_POLL_S = 0.5
#: A processor's rank; a product of some 50 ms, buffers larger than its caches.
_ON_CPU = {"gemm_size": 1024, "copy_bytes": 2**27, "message_bytes": 2**24, "repeats": 15}
#: A GPU's; the buffers are a hundred times its caches, the product takes some ms.
_ON_GPU = {"gemm_size": 8192, "copy_bytes": 2**32, "message_bytes": 2**28, "repeats": 15}


def qualify(
    platform: Platform, hardware: Hardware, node_count: int | None, results_folder: Path, say: Callable[[str], None]
) -> tuple[HealthReport, Path]:
    """Check the nodes of a platform, write what was found, and let its jobs avoid those that are slow.

    Args:
        node_count: how many nodes; None for as many as a job may have. Slurm chooses them.
        say: is told how it goes on.

    Returns:
        the report, and the file that it was written to.

    Raises:
        UserError: the job cannot be submitted, or ended before every rank had reported.
    """
    name, store = new_name(), results_folder / "store" / platform.name
    folder = store / "checks" / name
    if platform.executor is Executor.LOCAL:
        ranks = _ranks_here(platform, hardware, folder)
    else:
        ranks = _ranks_of_job(platform, hardware, node_count, folder, say)
    report = health_report(platform.name, code_version(), utc_now(), ranks)
    path = results_folder / "qualify" / f"{platform.name}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(report)))
    for one in report.nodes:
        nodes.forgive(store, one, "qualify")
    for outlier in report.outliers:
        found = nodes.Blame(of="qualify", why=str(outlier), at=report.at, conclusive=True)
        nodes.blame(store, outlier.node, found)
    return report, path


def _check(platform: Platform, hardware: Hardware, folder: Path, ranks: int) -> NodeCheck:
    gpu = hardware if hardware.device_names else None
    return NodeCheck(
        folder=str(folder.resolve()),
        ranks=ranks,
        code_digest=code_digest(),
        threads_per_rank=platform.threads_per_rank,
        gpu=gpu,
        **(_ON_CPU if gpu is None else _ON_GPU),
    )


def _ranks_here(platform: Platform, hardware: Hardware, folder: Path) -> list[RankHealth]:
    """Ranks on this machine, through submitit as on a node."""
    import submitit

    count = _LOCAL_RANKS["gpu" if hardware.device_names else "cpu"]
    payload = msgspec.json.encode(_check(platform, hardware, folder, count)).decode()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name need not resolve
    executor = submitit.LocalExecutor(folder=folder / "jobs")
    executor.update_parameters(tasks_per_node=count, timeout_min=_LOCAL_LIMIT_MIN)
    job = executor.submit(node.start_check, payload, "127.0.0.1")
    try:
        job.wait()
    except KeyboardInterrupt:
        job.cancel()
        raise
    found = _reports(folder, count)
    if len(found) < count:
        raise UserError("the check failed", where=str(folder), remedy=f"Its log: {folder / 'jobs'}.")
    return found


def _ranks_of_job(
    platform: Platform, hardware: Hardware, node_count: int | None, folder: Path, say: Callable[[str], None]
) -> list[RankHealth]:
    """Ranks of one job over the nodes."""
    asked, tasks = settings_of(platform), tasks_a_node(platform, hardware)
    count = node_count or asked.nodes
    if count > asked.nodes:
        raise UserError(
            f"{count} nodes are more than a job may have ({asked.nodes})",
            where=f"platform {platform.name}",
            remedy="Ask for fewer, or raise slurm.nodes.",
        )
    check = _check(platform, hardware, folder, count * tasks)
    minutes = min(max(asked.least_minutes, math.ceil(asked.start_up_minutes) + _CHECK_MIN), asked.most_minutes)
    folder.mkdir(parents=True, exist_ok=True)
    payload, shape = msgspec.json.encode(check).decode(), Shape(count, tasks, minutes)
    try:
        job_ids, _ = sbatch(
            node.start_check, [payload], parameters(platform, shape, folder.name), folder / "jobs", platform
        )
    except TryLaterError as error:
        raise UserError(f"Slurm takes no jobs now ({error})", where=platform.name, remedy="Try later.") from error
    say(f"job {job_ids[0]} checks {count} nodes with {tasks} ranks each")
    slurm = Slurm()
    try:
        job = _until_end(slurm, folder, check.ranks, asked.poll_s, asked.unknown_s)
    except KeyboardInterrupt:
        slurm.cancel(job_ids)
        raise
    found = _reports(folder, check.ranks)
    if len(found) < check.ranks:
        raise _unfinished(folder, job_ids[0], job, check.ranks, found)
    return found


def _until_end(slurm: Slurm, folder: Path, ranks: int, poll_s: float, unknown_s: float) -> Job | None:
    """Wait until every rank has reported, or the job has ended; what Slurm said last."""
    known_s, ended_s, job = time.monotonic(), None, None
    look_s = 0.0
    while len(_reports(folder, ranks)) < ranks:
        now_s = time.monotonic()
        if now_s > look_s:
            look_s = now_s + poll_s
            jobs = slurm.queue([folder.name])
            job = jobs[0] if jobs else job
            if jobs and jobs[0].state.phase in (Phase.WAITING, Phase.RUNNING):
                known_s, ended_s = now_s, None
            elif (jobs and jobs[0].state.phase is Phase.ENDED) or now_s - known_s > unknown_s:
                ended_s = ended_s or now_s
        if ended_s and now_s - ended_s > _GRACE_S:
            break
        time.sleep(_POLL_S)
    return job


def _reports(folder: Path, ranks: int) -> list[RankHealth]:
    files, found = AttemptFiles(folder), []
    for rank in range(ranks):
        try:
            found.append(msgspec.json.decode(files.health(rank).read_bytes(), type=RankHealth))
        except (OSError, msgspec.DecodeError):
            continue
    return found


def _unfinished(folder: Path, job_id: str, job: Job | None, ranks: int, found: list[RankHealth]) -> UserError:
    """Why a check has no result: which rank was the first to end, as srun says, or the state of the job."""
    missing = sorted(set(range(ranks)) - {one.rank for one in found})
    ends = first_ends(read_log(folder / "jobs" / f"{job_id}_0_log.out"))
    what = f"rank {ends[0].rank} on {ends[0].node}: {ends[0].how}" if ends else f"job {job.word if job else 'unknown'}"
    return UserError(
        f"{len(missing)} of {ranks} ranks did not report ({what})",
        where=f"job {job_id}",
        remedy=f"Its logs: {folder}. Leave the node out (slurm.exclude), and check again.",
    )
