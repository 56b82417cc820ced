"""A GPU is found by UUID or bus id under every form of CUDA_VISIBLE_DEVICES; each field is a value or a reason."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from scaling_study.measure.nvml import (
    NoGpuError,
    Nvml,
    NvmlUnavailableError,
    UnreadableError,
    bus_id,
    visible,
)
from scaling_study.spec import GpuIdentity
from tests.replay.nvml import GPUS, replayed_nvml

UUIDS = ("GPU-11111111-aaaa-0000-0000-000000000000", "GPU-11112222-aaaa-0000-0000-000000000000", "GPU-3333")
ALIKE = [GpuIdentity(index=i, name="NVIDIA H200", uuid=uuid, pci_bus_id=f"00000000:0{i}:00.0")
         for i, uuid in enumerate(UUIDS)]  # fmt: skip
MIXED = [*ALIKE[:2], GpuIdentity(index=2, name="Tesla T4", uuid=UUIDS[2])]


def gpu(*names, **options):
    return Nvml(replayed_nvml(*names, **options)).gpus()[0]


# -- which GPUs are visible ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2]),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("1,7,0", [1]),  # what follows an entry that names no GPU does not count
        ("1,-1,0", [1]),
        ("1,,0", [1]),
        (UUIDS[1], [1]),
        (f"{UUIDS[2]},{UUIDS[0]}", [2, 0]),
        ("GPU-11112", [1]),
        ("GPU-3", [2]),
        ("gpu-3333", [2]),
        ("0,GPU-1111", [0]),  # two begin with it
    ],
)
def test_visible_gpus_are_those_that_cuda_sees_in_its_order(value, indices):
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert [one.index for one in visible(ALIKE, environment)] == indices


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "9", "GPU-1111", "GPU-9", "none"])
def test_a_value_that_hides_every_gpu_is_named(value):
    with pytest.raises(NoGpuError, match=r"CUDA_VISIBLE_DEVICES is '.*': it hides every GPU of this machine; unset it"):
        visible(ALIKE, {"CUDA_VISIBLE_DEVICES": value})


@pytest.mark.parametrize("value", ["0,0", f"0,{UUIDS[0]}"])
def test_a_gpu_named_twice_leaves_none(value):
    with pytest.raises(NoGpuError, match="names one GPU twice"):
        visible(ALIKE, {"CUDA_VISIBLE_DEVICES": value})


@pytest.mark.parametrize("value", ["MIG-3eb87630-93d5-b2b6-b8ff-9b359caf4ee2", "MIG-GPU-1111/7/0", "0,MIG-3eb8"])
def test_a_mig_slice_is_refused_with_the_reason(value):
    with pytest.raises(NoGpuError, match=r"MIG slice: power, clocks and the peak are those of the whole GPU"):
        visible(ALIKE, {"CUDA_VISIBLE_DEVICES": value})


def test_an_index_among_different_gpus_needs_their_order():
    with pytest.raises(NoGpuError, match="CUDA counts the fastest first: name them by UUID, or set CUDA_DEVICE_ORDER"):
        visible(MIXED, {"CUDA_VISIBLE_DEVICES": "1"})
    by_bus = {"CUDA_VISIBLE_DEVICES": "2,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [one.index for one in visible(MIXED, by_bus)] == [2, 1]
    assert [one.index for one in visible(MIXED, {"CUDA_VISIBLE_DEVICES": UUIDS[2]})] == [2]


def test_without_a_gpu_none_is_visible():
    with pytest.raises(NoGpuError, match="lists no GPU"):
        visible([], {})


# -- which of them is ours -------------------------------------------------------------------------------------------


def test_a_gpu_is_found_by_uuid_whatever_its_place():
    nvml = Nvml(replayed_nvml("v100", "h100", "a100"))
    for name in ("a100", "v100", "h100"):
        for uuid in (GPUS[name]["uuid"], GPUS[name]["uuid"].removeprefix("GPU-").upper()):
            assert nvml.find(uuid, None).identity.name == GPUS[name]["name"]


def test_a_gpu_without_a_uuid_is_found_by_its_bus():
    found = Nvml(replayed_nvml("v100", "h100")).find(None, "0000:18:00.0")
    assert found.identity == GpuIdentity(
        index=1, name="NVIDIA H100 80GB HBM3", uuid=GPUS["h100"]["uuid"], pci_bus_id="00000000:18:00.0",
        memory_gib=pytest.approx(79.6, abs=0.1),
    )  # fmt: skip


def test_a_gpu_that_is_not_listed_is_said():
    with pytest.raises(NvmlUnavailableError, match="lists no GPU with the UUID GPU-0 or the PCI bus id 0:1:2"):
        Nvml(replayed_nvml("v100")).find("GPU-0", "0:1:2.0")


def test_a_gpu_that_is_cut_into_slices_is_refused():
    with pytest.raises(UnreadableError, match="NVIDIA A100-SXM4-80GB is a MIG slice: power"):
        Nvml(replayed_nvml("a100-mig")).find(GPUS["a100-mig"]["uuid"], None)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("00000000:18:00.0", (0, 24, 0, 0)), ("0000:18:00.0", (0, 24, 0, 0)), ("0001:AF:1f", (1, 175, 31, 0)),
     (None, None), ("", None), ("18:00.0", None), ("x:y:z", None)],
)  # fmt: skip
def test_bus_ids_are_numbers(text, numbers):
    assert bus_id(text) == numbers


# -- fields ----------------------------------------------------------------------------------------------------------


def test_v100_has_a_counter_and_instant_power_by_the_old_function_alone():
    v100 = gpu("v100")
    assert v100.instant_w() == 287.45
    assert v100.energy_j() == pytest.approx(912345.678, abs=1)
    with pytest.raises(UnreadableError, match="not supported by this GPU or driver"):
        v100.one_second_average_w()


def test_a100_has_no_average_and_its_usage_is_instant():
    a100 = gpu("a100")
    assert a100.instant_w() == 391.2
    with pytest.raises(UnreadableError, match="not supported"):
        a100.one_second_average_w()
    assert gpu("a100", absent=("NVML_FI_DEV_POWER_INSTANT",)).instant_w() == 391.2


def test_h100_tells_instant_power_from_the_average():
    h100 = gpu("h100")
    assert (h100.instant_w(), h100.one_second_average_w()) == (668.9, 652.3)


def test_h100_under_a_module_without_the_fields_has_an_average_and_no_instant_power():
    absent = ("NVML_FI_DEV_POWER_INSTANT", "NVML_FI_DEV_POWER_AVERAGE")
    h100 = gpu("h100", absent=absent)
    assert h100.one_second_average_w() == 652.3
    with pytest.raises(UnreadableError, match="has no NVML_FI_DEV_POWER_INSTANT"):
        h100.instant_w()


def test_clocks_temperature_and_reasons():
    for name in ("v100", "a100", "h100"):
        one, said = gpu(name), GPUS[name]
        assert (one.sm_mhz(), one.memory_mhz(), one.temperature_c()) == (
            said["sm_mhz"], said["memory_mhz"], said["temperature_c"],
        )  # fmt: skip
        assert one.throttle_reasons() == ["sw_power_cap"]  # of a V100 by the function of old drivers
    assert gpu("h200").throttle_reasons() == []


def test_unknown_reasons_keep_their_bits(monkeypatch):
    monkeypatch.setitem(GPUS["h100"], "throttle", 0x1048)
    assert gpu("h100").throttle_reasons() == ["hw_slowdown", "hw_thermal_slowdown", "0x1000"]


@pytest.mark.parametrize("field", ["energy_j", "instant_w", "one_second_average_w", "sm_mhz", "throttle_reasons"])
def test_permission_denied_is_a_reason_of_the_field(field):
    denied = gpu("h100-denied")
    with pytest.raises(UnreadableError, match="permission denied"):
        getattr(denied, field)()
    assert denied.temperature_c() == 58.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("no_library", "no NVIDIA driver on this machine"),
        ("driver_not_loaded", "the NVIDIA driver is not loaded"),
        ("driver_mismatch", "the NVML library and the loaded driver are of different versions"),
        ("no_permission", "permission denied"),
        ("lost", "the GPU has fallen off the bus"),
    ],
)
def test_why_nvml_cannot_be_used_is_a_sentence(error, reason):
    with pytest.raises(NvmlUnavailableError, match=reason):
        Nvml(replayed_nvml("h100", init=error))


def test_without_a_driver_the_real_library_says_so():
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver")
    with pytest.raises(NvmlUnavailableError, match="no NVIDIA driver on this machine"):
        Nvml()


def test_names_of_old_modules_are_bytes():
    module = replayed_nvml("v100")
    module.nvmlDeviceGetName = lambda handle: b"Tesla V100-SXM2-32GB"
    module.nvmlDeviceGetPciInfo = lambda handle: SimpleNamespace(busId=b"00000000:06:00.0")
    (found,) = Nvml(module).gpus()
    assert (found.identity.name, found.identity.pci_bus_id) == ("Tesla V100-SXM2-32GB", "00000000:06:00.0")
