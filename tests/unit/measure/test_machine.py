"""What a rank says about its machine is what the machine says."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from scaling_study.measure.machine import PeakMemory, cpu_name

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux says it in /proc")


@ON_LINUX
def test_the_processor_is_named_as_the_system_names_it():
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    if models:
        assert models[0].endswith(cpu_name())
    assert cpu_name().strip() == cpu_name() != ""


def test_a_processor_without_a_model_name_has_its_architecture(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor\t: 0\n")
    assert cpu_name() in (platform.processor(), platform.machine())
    assert cpu_name()


def _measured(script):
    code = f"from scaling_study.measure.machine import PeakMemory\nMIB = 2**20\n{script}\nprint(memory.gib() * 1024)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return float(printed)


def test_peak_memory_sees_what_was_allocated_and_freed_again():
    peak_mib = _measured("memory = PeakMemory()\nblock = bytearray(64 * MIB)\ndel block")
    assert peak_mib == pytest.approx(64, abs=4)


def test_memory_that_was_there_before_does_not_count():
    peak_mib = _measured("before = bytearray(96 * MIB)\nmemory = PeakMemory()\nblock = bytearray(32 * MIB)")
    assert peak_mib == pytest.approx(32, abs=4)


@ON_LINUX
def test_an_earlier_peak_does_not_count():
    peak_mib = _measured(
        "before = bytearray(128 * MIB)\ndel before\nmemory = PeakMemory()\nblock = bytearray(16 * MIB)"
    )
    assert peak_mib == pytest.approx(16, abs=4)


def test_the_largest_moment_counts_not_the_sum():
    script = "memory = PeakMemory()\nfor size in (16, 48, 32):\n    block = bytearray(size * MIB); del block"
    assert _measured(script) == pytest.approx(48, abs=4)


@ON_LINUX
def test_pages_of_a_file_are_no_memory_that_is_needed(tmp_path):
    (tmp_path / "tokens.bin").write_bytes(bytes(64 * 2**20))
    script = f"import mmap; memory = PeakMemory(); file = open({str(tmp_path / 'tokens.bin')!r}, 'rb')\n"
    script += (
        "pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); sum(pages[::4096]); block = bytearray(16 * MIB)"
    )
    assert _measured(script) == pytest.approx(16, abs=4)


@ON_LINUX
def test_a_peak_stays_when_pages_of_a_file_come_in_later(tmp_path):
    (tmp_path / "tokens.bin").write_bytes(bytes(64 * 2**20))
    script = "import mmap; memory = PeakMemory(); block = bytearray(48 * MIB); del block; memory.sample()\n"
    script += f"file = open({str(tmp_path / 'tokens.bin')!r}, 'rb')\n"
    script += "pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); sum(pages[::4096])"
    assert _measured(script) == pytest.approx(48, abs=4)


def test_nothing_allocated_is_about_nothing():
    assert 0 <= PeakMemory().gib() < 0.01


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_memory_is_kept_once_asked_for():
    script = (
        "import psutil; from scaling_study.measure.machine import keep_freed_memory\n"
        "resident = lambda: psutil.Process().memory_info().rss / 2**20\n"
        "def left():\n"
        "    before = resident(); block = bytearray(64 * 2**20); del block\n"
        "    return resident() - before\n"
        "print(left()); keep_freed_memory(); print(left())"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    given_back_mib, kept_mib = map(float, printed.split())
    assert given_back_mib < 4
    assert kept_mib == pytest.approx(64, abs=4)
