"""In a check of nodes each has one partner a round, and both neighbours over all; two ranks measure through a node."""

import msgspec
import pytest

from scaling_study.measure.health import rounds, training_precision
from scaling_study.spec import AttemptFiles, NodeCheck, Precision, RankHealth
from scaling_study.submit.node import start_check
from scaling_study.submit.version import code_digest
from tests.unit.samples import CONFIG


@pytest.mark.parametrize("nodes", range(1, 12))
def test_every_node_meets_both_its_neighbours_one_a_round(nodes):
    turns, met = rounds(nodes), {node: [] for node in range(nodes)}
    assert len(turns) <= 3
    for turn in turns:
        assert all(turn[turn[node]] == node != turn[node] for node in turn)
        for node, partner in turn.items():
            met[node].append(partner)
    neighbours = {node: {(node - 1) % nodes, (node + 1) % nodes} - {node} for node in range(nodes)}
    assert {node: set(partners) for node, partners in met.items()} == neighbours
    assert all(len(partners) == len(set(partners)) for partners in met.values())


@pytest.mark.parametrize(
    ("name", "precision"), [("v100", Precision.FP16), ("a100", Precision.BF16), ("cpu", Precision.FP32)]
)
def test_the_product_is_in_the_precision_that_the_device_trains_in(name, precision):
    assert training_precision(CONFIG.catalogue.hardware[name]) is precision
    assert training_precision(None) is Precision.FP32


def check(folder, digest, ranks):
    return NodeCheck(
        folder=str(folder), ranks=ranks, code_digest=digest, threads_per_rank=1, gemm_size=64, copy_bytes=2**16,
        message_bytes=2**12, repeats=3,
    )  # fmt: skip


def submitted(tmp_path, digest, ranks=2):
    from submitit import LocalExecutor

    executor = LocalExecutor(folder=tmp_path / "jobs")
    executor.update_parameters(tasks_per_node=ranks, timeout_min=2)
    return executor.submit(start_check, msgspec.json.encode(check(tmp_path, digest, ranks)).decode(), "127.0.0.1")


def test_two_ranks_of_a_node_report(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("SLURMD_NODENAME", "node7")
    submitted(tmp_path, code_digest()).results()
    paths = [AttemptFiles(tmp_path).health(number) for number in (0, 1)]
    found = [msgspec.json.decode(path.read_bytes(), type=RankHealth) for path in paths]
    assert [(one.rank, one.node, one.between_gb_per_s) for one in found] == [(0, "node7", {}), (1, "node7", {})]
    for one in found:
        assert min(one.gemm_tflops, one.memory_gb_per_s, one.within_gb_per_s, one.latency_us) > 0


def test_a_node_with_other_code_refuses(tmp_path):
    job = submitted(tmp_path, "0123456789abcdef", ranks=1)
    with pytest.raises(Exception, match="this node runs other code"):
        job.results()
    assert not AttemptFiles(tmp_path).health(0).exists()
