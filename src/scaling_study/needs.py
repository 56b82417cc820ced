"""What `make gpu-check` needs of a Python that it did not set up, and what of it is missing, in one sentence.

Only the standard library is imported here: it runs before anything that may not be there. Bounds are those of
`pyproject.toml`. A version outside of them is named and tried; a torch that is too old is not.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib import metadata, util
from pathlib import Path

#: Packages that measuring on a GPU imports, by the module that shows whether they are there; Snakemake, submitit and
#: what draws figures are not among them.
NEEDED = {
    "click": "click",
    "msgspec": "msgspec",
    "numpy": "numpy",
    "polars": "polars",
    "psutil": "psutil",
    "pyyaml": "yaml",
    "rich": "rich",
    "torch": "torch",
}
#: What is used where it is there, and what is missing without it.
USED = {
    "nvidia-ml-py": ("pynvml", "no power, clocks or temperature"),
    "xformers": ("xformers", "its attention is left out"),
}
OLDEST_TORCH = (2, 10)
OLDEST_PYTHON = (3, 11)
_EXIT_USER_ERROR = 2


def requirements(project: Path) -> dict[str, str]:
    """Every requirement of a `pyproject.toml`, extras included, by the name of its package."""
    content = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    listed = [*content["dependencies"], *(one for extra in content["optional-dependencies"].values() for one in extra)]
    return {re.split(r"[<>=!~ \[;]", one, maxsplit=1)[0]: one for one in listed}


def outside(version: str, requirement: str) -> bool:
    """Whether a version breaks a bound of a requirement (`>=` and `<` alone are looked at)."""
    have = _numbers(version)
    for kind, bound in re.findall(r"(>=|<)\s*([0-9][0-9.]*)", requirement):
        limit = _numbers(bound)
        padded = have + (0,) * (len(limit) - len(have))
        if (kind == ">=" and padded < limit) or (kind == "<" and padded[: len(limit)] >= limit):
            return True
    return False


def verdict(
    bounds: dict[str, str],
    python: tuple[int, ...] = sys.version_info[:2],
    found: Callable[[str], bool] | None = None,
    version: Callable[[str], str | None] | None = None,
) -> tuple[list[str], list[str]]:
    """What stands in the way, and what is only to be known; sentences without their full stop.

    Args:
        bounds: requirements by package.
        python: version of the interpreter.
        found: whether a module is there.
        version: of a package, None where nothing says.
    """
    found, version = found or _found, version or _version
    wrong = [] if python >= OLDEST_PYTHON else ["Python 3.11 or later is needed; name one with PYTHON=python3.11"]
    missing = [name for name, module in NEEDED.items() if not found(module)]
    if missing:
        command = " ".join(f"'{bounds.get(name, name)}'" for name in missing)
        wrong.append(
            f"{', '.join(missing)} missing in {sys.executable}; install with: {sys.executable} -m pip install {command}"
        )
    torch = version("torch") if "torch" not in missing else None
    if torch is not None and _numbers(torch)[:2] < OLDEST_TORCH:
        wrong.append(f"torch {torch} is too old; {bounds.get('torch', 'torch>=2.10')} is needed")
    notes = [f"{name} is not there: {without}" for name, (module, without) in USED.items() if not found(module)]
    for name in NEEDED:
        have = version(name) if name not in missing else None
        if have is not None and name in bounds and outside(have, bounds[name]):
            notes.append(f"{name} is {have}, tested is {bounds[name]}")
    return wrong, notes


def main(say: Callable[[str], object] = lambda line: print(line, file=sys.stderr)) -> int:
    """Say what is missing; the exit code."""
    wrong, notes = verdict(requirements(Path(__file__).parents[2] / "pyproject.toml"))
    for line in _lines(wrong, notes):
        say(line)
    return _EXIT_USER_ERROR if wrong else 0


def _lines(wrong: Iterable[str], notes: Iterable[str]) -> list[str]:
    return [*(f"gpu-check: {note}" for note in notes), *(f"gpu-check: {one}" for one in wrong)]


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `2.11.0+cu130` is 2, 11, 0."""
    plain = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(int(part) for part in plain[0].split(".")) if plain else ()


def _found(module: str) -> bool:
    return util.find_spec(module) is not None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
