"""Power over a window: from the counter where there is one, else from samples; null with a reason where it is short."""

import pytest

from scaling_study.measure.nvml import Nvml
from scaling_study.measure.power import PowerMeter, power_unavailable
from scaling_study.spec import PowerSource
from tests.replay.nvml import GPUS, replayed_nvml


class Clock:
    """Seconds that go up when they are told to."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def watched(monkeypatch):
    """A window of some seconds of a GPU, with samples taken at these seconds, not by the thread."""

    def watched(name, window_s=4.0, at_s=(0.5, 1.5, 2.5), share=0.25, **options):
        clock = Clock()
        module = replayed_nvml(name, clock=clock, **options)
        meter = PowerMeter(Nvml(module).gpus()[0], share, clock)
        monkeypatch.setattr(meter, "_watch", lambda: None)
        meter.begin()
        for second in at_s:
            clock.now_s = 100.0 + second
            meter.sample()
        clock.now_s = 100.0 + window_s
        meter.end()
        return meter

    return watched


def test_the_counter_comes_first(watched):
    power = watched("h100").power()
    assert power.source is PowerSource.ENERGY_COUNTER
    assert power.power_w == pytest.approx(649.0, rel=1e-5)
    assert power.energy_j == pytest.approx(4 * 649.0, rel=1e-5)
    assert (power.window_s, power.reason, power.sampling_share) == (4.0, None, 0.25)


def test_instant_power_and_the_average_stand_apart(watched):
    power = watched("h100").power()
    assert (power.instant_w, power.instant_samples) == (pytest.approx(668.9), 3)
    assert (power.one_second_average_w, power.one_second_average_samples) == (pytest.approx(652.3), 2)
    assert power.counter_over_samples == pytest.approx(649.0 / 668.9, rel=1e-4)
    assert power.unreadable == {}


@pytest.mark.parametrize("name", ["v100", "a100"])
def test_parts_without_an_average_say_so(name, watched):
    power = watched(name).power()
    assert power.source is PowerSource.ENERGY_COUNTER
    assert power.instant_w == pytest.approx(GPUS[name]["usage_mw"] / 1000)
    assert power.one_second_average_w is None
    assert list(power.unreadable) == ["one_second_average_w"]


def test_without_a_counter_samples_are_the_power(watched, monkeypatch):
    monkeypatch.setitem(GPUS["h100"], "energy_base_mj", "not_supported")
    power = watched("h100").power()
    assert (power.source, power.power_w) == (PowerSource.INSTANT, pytest.approx(668.9))
    assert (power.energy_j, power.counter_over_samples) == (None, None)
    assert "not supported" in power.unreadable["energy_j"]


def test_without_either_the_average_is(watched, monkeypatch):
    monkeypatch.setitem(GPUS["h100"], "energy_base_mj", "not_supported")
    monkeypatch.setitem(GPUS["h100"], "fields", {"185": 652300, "186": "not_supported"})
    power = watched("h100").power()
    assert (power.source, power.power_w) == (PowerSource.ONE_SECOND_AVERAGE, pytest.approx(652.3))


def test_a_counter_that_goes_backwards_counts_nothing(watched, monkeypatch):
    monkeypatch.setitem(GPUS["h100"], "energy_w", -1.0)
    power = watched("h100").power()
    assert power.source is PowerSource.INSTANT
    assert power.unreadable["energy_j"].startswith("the counter went from 7654321.098 J to 76543")


def test_where_nothing_may_be_read_the_reason_names_every_way(watched):
    power = watched("h100-denied").power()
    assert (power.power_w, power.source) == (None, None)
    for name in ("energy_j", "instant_w", "one_second_average_w"):
        assert f"{name}: permission denied" in power.reason


def test_a_short_window_has_no_power(watched):
    power = watched("h100", window_s=0.6, at_s=(0.1, 0.5)).power()
    assert (power.power_w, power.source) == (None, None)
    assert power.reason == "the iterations that count took 0.60 s, power needs 1 s"
    assert power.energy_j == pytest.approx(0.6 * 649.0, rel=1e-4)


def test_clocks_and_reasons_are_shares_of_samples(watched, monkeypatch):
    clocks = watched("h100").clocks()
    assert (clocks.sm_mhz, clocks.sm_least_mhz, clocks.memory_mhz, clocks.temperature_c) == (1755, 1755, 2619, 58)
    assert clocks.throttled == {"sw_power_cap": 1.0}
    denied = watched("h100-denied").clocks()
    assert (denied.sm_mhz, denied.memory_mhz, denied.throttled) == (None, 2619, {})


def test_the_thread_samples_while_the_window_is_open():
    meter = PowerMeter(Nvml(replayed_nvml("a100")).gpus()[0])
    meter.begin()
    meter.end()
    power = meter.power()
    assert power.instant_samples >= 1
    assert power.sampling_share is None


def test_a_rank_on_a_cpu_has_no_power():
    assert power_unavailable()
