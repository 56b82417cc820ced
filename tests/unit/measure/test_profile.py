"""The profiled window of a GPU: what its trace says, and null with a reason where the profiler saw nothing."""

import gzip
import json

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from scaling_study.measure import profile
from scaling_study.measure.profile import profile_iterations
from scaling_study.spec import SpanKind
from scaling_study.timeline import SCHEMA, exposure, read_trace
from tests.ranks import run_on_ranks
from tests.replay.cuda import ReplayedDevice
from tests.replay.traces import TRACE
from tests.unit.samples import CONFIG


def window(folder, recorded):
    """One rank that attends twice, under a GPU that is replayed; its trace is a recorded one, or what a CPU gives."""
    if recorded:
        profile.read_trace = lambda path, rank: read_trace(TRACE, rank)
    device = ReplayedDevice(CONFIG.catalogue.hardware["h200"], 0, ["h200"])
    q = torch.ones(1, 2, 8, 4)

    def iterate(iterations, around):
        for _ in iterations:
            with around():
                torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return [1000] * len(iterations)

    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    raw, kept = folder / "raw.json", folder / "kept.json.gz"
    found = profile_iterations(iterate, range(2), device, mesh, raw, 0, kept)
    left = sorted(path.name for path in folder.iterdir())
    return found.spans, found.iteration_ns, found.missing, left, dist.get_world_size()


def test_what_the_gpu_did_is_read_from_the_trace(tmp_path):
    ((spans, taken_ns, missing, left, _),) = run_on_ranks(window, 1, tmp_path, True)
    assert (taken_ns, missing, left) == ([1000, 1000], None, ["kept.json.gz"])
    assert dict(spans.schema) == SCHEMA
    assert spans["kind"].to_list().count(SpanKind.COMPUTE) == 3
    seen = exposure(spans)[0]
    assert (seen.compute_ns, seen.communication_ns, seen.exposed_communication_ns) == (900_000, 200_000, 100_000)
    assert seen.exposed_by_axis_ns == {"dp": 100_000}
    assert json.loads(gzip.decompress((tmp_path / "kept.json.gz").read_bytes()))["traceEvents"]


def test_where_the_profiler_sees_nothing_on_the_gpu_that_is_the_reason(tmp_path):
    ((spans, _, missing, _, _),) = run_on_ranks(window, 1, tmp_path, False)
    assert spans.is_empty()
    assert missing.startswith("the profiler saw nothing on the GPU (CUPTI is missing")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_gpu_is_seen(tmp_path):
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    a = torch.ones(1024, 1024, device="cuda")
    with record(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        (a @ a).sum()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = read_trace(tmp_path / "trace.json", 0)
    assert trace.verdict.sound
    assert trace.device.height >= 2
