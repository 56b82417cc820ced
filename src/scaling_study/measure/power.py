"""Power, clocks and temperature of a GPU while iterations run: counted by the GPU, and sampled beside it."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from scaling_study.measure.nvml import Nvml, NvmlGpu, NvmlUnavailableError, UnreadableError
from scaling_study.spec import ClockReport, PowerReport, PowerSource

#: A shorter window says little: the counter and the sensor are brought up to date about ten times a second.
LEAST_WINDOW_S = 1.0
_INTERVAL_S = 0.1
_LOOKS_BACK_S = 1.0


def power_unavailable() -> str:
    """Why there is no power of a rank on a CPU."""
    try:
        Nvml().close()
    except NvmlUnavailableError as error:
        return str(error)
    return "power is read for runs on GPUs only"


class PowerMeter:
    """Watches a GPU between `begin` and `end`, from a thread of its own.

    Args:
        gpu: what NVML tells of it.
        sampling_share: share of the time in which the part's sensor looks, where that is published.
        clock: seconds that only go up.
    """

    def __init__(
        self, gpu: NvmlGpu, sampling_share: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gpu, self._share, self._clock = gpu, sampling_share, clock
        self._samples: dict[str, list[tuple[float, float]]] = {}
        self._reasons: Counter[str] = Counter()
        self._looks = 0
        self._unreadable: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._began_s = self._ended_s = 0.0
        self._energy_j: tuple[float | None, float | None] = (None, None)

    def begin(self) -> None:
        """The window begins now."""
        self._began_s, self._energy_j = self._clock(), (self._counter(), None)
        self._thread = threading.Thread(target=self._watch, name="power", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The window ends now."""
        self._energy_j, self._ended_s = (self._energy_j[0], self._counter()), self._clock()
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def sample(self) -> None:
        """Look once."""
        now_s, gpu = self._clock(), self._gpu
        for name, read in (
            ("instant_w", gpu.instant_w),
            ("one_second_average_w", gpu.one_second_average_w),
            ("sm_mhz", gpu.sm_mhz),
            ("memory_mhz", gpu.memory_mhz),
            ("temperature_c", gpu.temperature_c),
        ):
            if name in self._unreadable:
                continue
            with self._noting(name):
                self._samples.setdefault(name, []).append((now_s, read()))
        if "throttle_reasons" not in self._unreadable:
            with self._noting("throttle_reasons"):
                self._reasons.update(gpu.throttle_reasons())
                self._looks += 1

    def power(self) -> PowerReport:
        """What was found of power."""
        window_s = self._ended_s - self._began_s
        instant = self._values("instant_w")
        average = self._values("one_second_average_w", self._began_s + _LOOKS_BACK_S)
        energy_j = self._counted()
        means = {
            PowerSource.ENERGY_COUNTER: energy_j / window_s if energy_j is not None and window_s > 0 else None,
            PowerSource.INSTANT: statistics.fmean(instant) if instant else None,
            PowerSource.ONE_SECOND_AVERAGE: statistics.fmean(average) if average else None,
        }
        source = next((name for name in PowerSource if means[name] is not None), None)
        counter_w, instant_w = means[PowerSource.ENERGY_COUNTER], means[PowerSource.INSTANT]
        report = PowerReport(
            window_s=window_s,
            power_w=means[source] if source else None,
            source=source,
            reason=None if source else self._why_nothing(),
            energy_j=energy_j,
            instant_w=instant_w,
            one_second_average_w=means[PowerSource.ONE_SECOND_AVERAGE],
            instant_samples=len(instant),
            one_second_average_samples=len(average),
            sampling_share=self._share,
            counter_over_samples=counter_w / instant_w if counter_w is not None and instant_w else None,
            unreadable=dict(self._unreadable),
        )
        if window_s >= LEAST_WINDOW_S:
            return report
        short = f"the iterations that count took {window_s:.2f} s, power needs {LEAST_WINDOW_S:g} s"
        return msgspec.structs.replace(report, power_w=None, source=None, reason=short)

    def clocks(self) -> ClockReport:
        """What was found of clocks and temperature."""
        sm, memory, heat = (self._values(name) for name in ("sm_mhz", "memory_mhz", "temperature_c"))
        return ClockReport(
            sm_mhz=statistics.fmean(sm) if sm else None,
            sm_least_mhz=min(sm, default=None),
            memory_mhz=statistics.fmean(memory) if memory else None,
            temperature_c=max(heat, default=None),
            throttled={name: count / self._looks for name, count in sorted(self._reasons.items())},
        )

    def _watch(self) -> None:
        while True:
            self.sample()
            if self._ended.wait(_INTERVAL_S):
                return

    def _counter(self) -> float | None:
        try:
            return self._gpu.energy_j()
        except UnreadableError as error:
            self._unreadable["energy_j"] = str(error)
            return None

    def _counted(self) -> float | None:
        """What the counter counted; a counter that went backwards, as after a reset, counted nothing."""
        first, last = self._energy_j
        if first is None or last is None:
            return None
        if last > first:
            return last - first
        self._unreadable["energy_j"] = f"the counter went from {first:.3f} J to {last:.3f} J"
        return None

    def _values(self, name: str, from_s: float = float("-inf")) -> list[float]:
        return [value for at_s, value in self._samples.get(name, []) if at_s >= from_s]

    def _why_nothing(self) -> str:
        names = ("energy_j", "instant_w", "one_second_average_w")
        said = [f"{name}: {self._unreadable[name]}" for name in names if name in self._unreadable]
        return "NVML tells no power of this GPU (" + ("; ".join(said) or "no sample was taken") + ")"

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnreadableError as error:
            self._unreadable[name] = str(error)
