"""A link that is slow at times, made with `tc netem` in a network namespace of its own, where the machine allows it."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DELAY_MS = 40
SCRIPT = textwrap.dedent(
    f"""
    import os, subprocess
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch, torch.distributed as dist
    from scaling_study.measure.arrivals import synchronisation_of
    from scaling_study.measure.observer import observer_of, watched_backend
    from scaling_study.spec import Protocol
    from scaling_study.spec.synchronisation import Cause
    from scaling_study.training.parallel import build_mesh
    from tests.ranks import run_on_ranks
    from tests.unit.training.test_step import make_run

    def traffic():
        run = make_run(2, global_batch=4, protocol=Protocol(observe_synchronisation=True))
        mesh = build_mesh(run, "cpu", watched_backend(run))
        observer, message = observer_of(run, mesh), torch.ones(1024)
        for step in range(12):
            if step == 6 and dist.get_rank() == 0:
                subprocess.run("tc qdisc add dev lo root netem delay {DELAY_MS}ms".split(), check=True)
            dist.barrier()
            with observer.watching(step):
                dist.all_reduce(message, group=mesh.get_group("dp"))
        return observer.finish("host", dist.get_rank())

    if __name__ == "__main__":
        found = synchronisation_of(run_on_ranks(traffic, 2), 0)
        print(found.axes[0].lost_s[Cause.NETWORK], sum(found.axes[0].lost_s.values()))
    """
)


def why_not() -> str:
    """Why there can be no slow link here; empty where there can."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "tc"))):
        return "needs root, unshare, ip and tc"
    tried = "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"
    found = subprocess.run(["unshare", "-n", "sh", "-c", tried], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else f"tc netem: {found.stderr.strip() or 'refused'}"


def test_a_link_that_becomes_slow_is_found_to_be_the_network(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    (tmp_path / "slow_link.py").write_text(SCRIPT, encoding="utf-8")
    command = f"ip link set lo up && exec {sys.executable} {tmp_path / 'slow_link.py'}"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", command], capture_output=True, text=True, timeout=120, env=environment, check=True
    )
    network_s, lost_s = map(float, done.stdout.split())
    assert network_s >= DELAY_MS / 1e3 / 2  # in half of the iterations
    assert network_s > 0.8 * lost_s
