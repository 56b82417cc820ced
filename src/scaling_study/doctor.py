"""What the verb `doctor` shows: what this machine, or a platform's login node, has and lacks, and what mends it."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from importlib import metadata
from pathlib import Path

import msgspec
import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.markup import escape
from rich.table import Column, Table

from scaling_study.console import printer
from scaling_study.measure.nvml import Nvml, NvmlUnavailableError
from scaling_study.processes import available_cores
from scaling_study.recordfile import is_damaged
from scaling_study.spec import Executor, Platform

#: The distribution whose own requirements everything is held against.
_OURS = "scaling-study"
_ROOM_GB, _MEMORY_GIB = 3.0, 4.0  # what `make study` takes: its environment most of the disk, four ranks the memory
_GIB, _GB = 2**30, 1e9


class State(StrEnum):
    """What became of a check."""

    OK = "ok"
    ABSENT = "absent"  # what it is for cannot be done; the rest can
    WRONG = "wrong"  # must be mended first


class Finding(msgspec.Struct, frozen=True):
    """One check.

    Attributes:
        what: is looked at.
        state: as it was found.
        found: in words.
        remedy: what to do about it, a command where one does it; empty where all is well.
    """

    what: str
    state: State
    found: str
    remedy: str = ""


def examine(folder: Path, platform: Platform | None) -> list[Finding]:
    """Look at everything.

    Args:
        folder: of the checkout.
        platform: for whose measurements a Slurm cluster or a GPU is looked for; None for this machine alone.
    """
    found = [_python(), *_packages(), *_machine(folder), _records(folder / "results" / "cached"), _writable(folder)]
    found += [_command("git", "make study and its checks", "apt-get install git", needed=True)]
    found += [_command("make", "the commands of the README", "apt-get install make", needed=True)]
    found += [_command("chromium", "tests of the report", "apt-get install chromium", needed=False)]
    if platform is not None and platform.executor is Executor.SLURM:
        found += list(_slurm())
    found += [_gpus()]
    return found


def print_findings(findings: list[Finding]) -> None:
    """As a table, what is wrong last and most visible."""
    table = Table("what", "state", "found", Column("to mend it", overflow="fold"), box=None, pad_edge=False)
    for one in findings:
        style = {State.OK: "green", State.ABSENT: "yellow", State.WRONG: "bold red"}[one.state]
        table.add_row(one.what, f"[{style}]{one.state}[/]", escape(one.found), escape(one.remedy))
    console = printer()
    console.print(table)
    wrong = [one.what for one in findings if one.state is State.WRONG]
    console.print(f"to be mended: {', '.join(wrong)}" if wrong else "nothing needs mending", markup=False)


def _python() -> Finding:
    bounds, found = metadata.metadata(_OURS)["Requires-Python"], ".".join(map(str, sys.version_info[:3]))
    if SpecifierSet(bounds).contains(found):
        return Finding("Python", State.OK, found)
    return Finding("Python", State.WRONG, found, f"Name one that is {bounds}: make study PYTHON=python3.11")


def _packages() -> Iterator[Finding]:
    """What is installed against what this package itself says that it requires."""
    without_gpu = "On a machine with GPUs: pip install -e '.[gpu]'; without it torch's own attention runs."
    sets = (
        ("figures and paper", "", State.WRONG, "pip install -c constraints/cpu.txt -e ."),
        ("measuring", "train", State.ABSENT, "pip install -c constraints/cpu.txt -e '.[train]'"),
        ("GPUs", "gpu", State.ABSENT, without_gpu),
    )
    for what, extra, state, remedy in sets:
        versions = {one: _version(one.name) for one in _requirements(extra)}
        missing = [one.name for one, version in versions.items() if version is None]
        wrong = [f"without {', '.join(missing)}"] if missing else []
        wrong += [
            f"{one.name} is {version}, not {one.specifier}"
            for one, version in versions.items()
            if version is not None and not one.specifier.contains(version, prereleases=True)
        ]
        if wrong:
            yield Finding(f"packages for {what}", state, "; ".join(wrong), remedy)
        else:
            said = ", ".join(f"{one.name} {version}" for one, version in versions.items())
            yield Finding(f"packages for {what}", State.OK, said)


def _requirements(extra: str) -> list[Requirement]:
    """What an extra alone requires; without one, what everything does."""
    found = [Requirement(line) for line in metadata.requires(_OURS) or ()]
    if not extra:
        return [one for one in found if one.marker is None]
    return [one for one in found if one.marker is not None and one.marker.evaluate({"extra": extra})]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine(folder: Path) -> Iterator[Finding]:
    memory, room = psutil.virtual_memory().total / _GIB, shutil.disk_usage(folder).free / _GB
    cores = available_cores()
    yield Finding(
        "cores", State.OK, f"{cores}" if cores > 1 else "1: ranks share it, and make study takes twice as long"
    )
    if memory >= _MEMORY_GIB:
        yield Finding("memory", State.OK, f"{memory:.0f} GiB")
    else:
        yield Finding("memory", State.ABSENT, f"{memory:.1f} GiB", f"make study wants {_MEMORY_GIB:.0f} GiB.")
    if room >= _ROOM_GB:
        yield Finding("disk", State.OK, f"{room:,.0f} GB free")
    else:
        yield Finding("disk", State.WRONG, f"{room:.1f} GB free", f"make study takes {_ROOM_GB:.0f} GB; make room.")


def _records(cached: Path) -> Finding:
    files = sorted(cached.glob("*/*/*.parquet"))
    bad = [path for path in files if path.parent.name != "model" and is_damaged(path.read_bytes())]
    if not files:
        return Finding("committed records", State.WRONG, f"none in {cached}", "git checkout -- results/cached")
    if bad:
        names = ", ".join(str(path.relative_to(cached)) for path in bad)
        return Finding("committed records", State.WRONG, f"altered: {names}", "git checkout -- results/cached")
    return Finding("committed records", State.OK, f"{len(files)} files, digests right")


def _writable(folder: Path) -> Finding:
    places = [folder / "results", folder / "figures", folder / "paper"]
    closed = [place.name for place in places if place.exists() and not os.access(place, os.W_OK)]
    if closed:
        return Finding("folders", State.WRONG, f"not writable: {', '.join(closed)}", f"chmod u+w {' '.join(closed)}")
    return Finding("folders", State.OK, "results, figures and paper can be written")


def _command(name: str, what: str, remedy: str, *, needed: bool) -> Finding:
    path = shutil.which(name)
    if path:
        return Finding(name, State.OK, path)
    return Finding(name, State.WRONG if needed else State.ABSENT, f"not there: {what} want it", remedy)


def _slurm() -> Iterator[Finding]:
    remedies = {
        "sbatch": "Log in to a node of the cluster that has Slurm's commands.",
        "squeue": "The same.",
        "sacct": "Ask for accounting; without it the driver knows less of jobs that ended.",
    }
    for name, remedy in remedies.items():
        path = shutil.which(name)
        state = State.OK if path else State.ABSENT if name == "sacct" else State.WRONG
        yield Finding(name, state, path or "not there", "" if path else remedy)


def _gpus() -> Finding:
    """What NVML sees; no GPU is no fault."""
    try:
        nvml = Nvml()
    except NvmlUnavailableError as error:
        return Finding("GPUs", State.ABSENT, f"none seen: {error}", "Nothing, unless this machine has one: its driver.")
    try:
        names = Counter(gpu.identity.name for gpu in nvml.gpus())
    except NvmlUnavailableError as error:
        return Finding("GPUs", State.ABSENT, f"cannot be asked: {error}", "Load the driver again, or reboot.")
    else:
        said = ", ".join(f"{count} x {name}" for name, count in names.items()) or "none"
        return Finding("GPUs", State.OK, f"{said}; driver {nvml.driver()}")
    finally:
        nvml.close()
