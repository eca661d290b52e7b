"""Build the sdist and the wheel, check them, and try the wheel in clean environments: `make release-check`.

For every supported Python on this machine (or those in RELEASE_PYTHONS, separated by spaces): install the wheel with
the extras `demo` and `plots` into a new environment, run the demo, and run the examples of all docstrings. An example
that needs a package of another extra counts as skipped.
"""

from __future__ import annotations

import email.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ("build>=1.2", "twine>=6.0")
EXTRAS = "demo,plots"
IN_WHEEL = {"fusehash/py.typed", "fusehash/app/static/index.html"}
IN_SDIST = {"README.md", "LICENSE", "CHANGELOG.md", "Makefile"}
IN_METADATA = {"Author", "Project-URL", "Requires-Python", "License-Expression"}

# Runs inside the clean environment; prints how many examples ran and which packages the skipped ones need.
DOCTESTS = """
import doctest, importlib, os, pkgutil, sys, tempfile
import fusehash
from fusehash.errors import MissingPackageError

os.chdir(tempfile.mkdtemp())
missing = set()


class Runner(doctest.DocTestRunner):
    needs_more = False

    def report_unexpected_exception(self, out, test, example, info):
        if isinstance(info[1], (MissingPackageError, ModuleNotFoundError)):
            self.needs_more = True
            missing.add(str(info[1]).partition("needs the package ")[2].partition(",")[0] or str(info[1].name))
        elif not self.needs_more:
            super().report_unexpected_exception(out, test, example, info)

    def report_failure(self, out, test, example, got):
        if not self.needs_more:  # what follows a line that could not run cannot be judged
            super().report_failure(out, test, example, got)


failed = attempted = 0
for module in pkgutil.walk_packages(fusehash.__path__, "fusehash."):
    if ">>> " not in module.module_finder.find_spec(module.name).loader.get_source(module.name):
        continue
    try:
        imported = importlib.import_module(module.name)
    except (MissingPackageError, ModuleNotFoundError) as error:
        missing.add(str(getattr(error, "name", None) or error))
        continue
    for test in doctest.DocTestFinder().find(imported, module.name):
        runner = Runner(optionflags=doctest.NORMALIZE_WHITESPACE)
        result = runner.run(test)
        if not runner.needs_more:
            failed, attempted = failed + result.failed, attempted + result.attempted
print(f"{attempted} examples of docstrings (others need {', '.join(sorted(missing)) or 'nothing'})")
sys.exit(bool(failed or attempted < 100))
"""


def main() -> int:
    """Run all checks; the exit status says whether all passed."""
    with tempfile.TemporaryDirectory(prefix="fusehash-release-") as folder:
        work = Path(folder)
        python = environment(work / "tools", Path(sys.executable))
        run(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", *TOOLS)
        wheel = build(python, work)
        for name, interpreter in interpreters().items():
            if interpreter is None:
                print(f"Python {name}: not on this machine.")
            else:
                try_wheel(wheel, name, interpreter, work / name)
    print("Ready to be published.")
    return 0


def build(python: Path, work: Path) -> Path:
    """Build both distributions from a copy of the tracked files, check them, and return the wheel."""
    source, out = work / "source", work / "dist"
    copy_tracked_files(source)
    run(python, "-m", "build", "--outdir", out, cwd=source)  # the wheel is built from the sdist
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    run(python, "-m", "twine", "check", "--strict", sdist, wheel)
    check_contents(sdist, wheel)
    print(
        f"Built and checked {sdist.name} ({sdist.stat().st_size:,} bytes) and {wheel.name} ({wheel.stat().st_size:,})."
    )
    return wheel


def copy_tracked_files(target: Path) -> None:
    """What git tracks, as it is in the working tree: nothing untracked gets into a release by accident."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def check_contents(sdist: Path, wheel: Path) -> None:
    """What must be there is there, what must not is not, and the description has no relative links."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata_name] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = email.parser.Parser().parsestr(archive.read(metadata_name).decode())
        modules = {name for name in names if name.endswith(".py")}
    here = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    description = str(metadata.get_payload())
    relative = re.findall(r"\]\((?!https?://|#)([^)]+)\)", description)
    problems = [
        *(f"the wheel lacks {name}" for name in sorted((here | IN_WHEEL) - names)),
        *(f"the wheel holds {name}" for name in sorted(modules - here)),
        *(f"the sdist lacks {name}" for name in sorted(IN_SDIST - in_sdist)),
        *(f"the description links to {link}, which is relative" for link in relative),
        *(f"the metadata lacks {field}" for field in sorted(IN_METADATA) if not metadata[field]),
    ]
    if metadata["Name"] != project["name"]:
        problems.append(f"the name is {metadata['Name']}")
    if problems:
        sys.exit("FAILED: " + "; ".join(problems) + ".")


def interpreters() -> dict[str, Path | None]:
    """Version -> interpreter, None where it is not on this machine."""
    chosen = os.environ.get("RELEASE_PYTHONS", "").split()
    candidates = chosen or [f"python{version}" for version in SUPPORTED]
    found: dict[str, Path | None] = {}
    for candidate in candidates:
        path = shutil.which(candidate) or _from_pyenv(candidate)
        version = _version_of(path) if path else None
        if chosen and version is None:
            sys.exit(f"FAILED: {candidate} is not on this machine.")
        found[version or candidate.removeprefix("python")] = Path(path) if path and version else None
    return found


def _from_pyenv(candidate: str) -> str | None:
    """The newest such Python of pyenv, which keeps those that are not active out of PATH."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    paths = sorted(root.glob(f"{candidate.removeprefix('python')}.*/bin/{candidate}"))
    return str(paths[-1]) if paths else None


def _version_of(path: str) -> str | None:
    """Such as "3.12"; None for a stub that does not start."""
    ask = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def try_wheel(wheel: Path, name: str, interpreter: Path, folder: Path) -> None:
    """Install the wheel into a new environment, run the demo and the examples of docstrings."""
    began = time.perf_counter()
    folder.mkdir(exist_ok=True)
    python = environment(folder / "venv", interpreter)
    run(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", f"{wheel}[{EXTRAS}]")
    run(python, "-m", "pip", "check", "--disable-pip-version-check")
    demo = json.loads(run(python.parent / "fusehash", "demo", "--json", "--no-serve", cwd=folder))
    scores = {score["protocol"]: score["mean"] for score in demo["results"]["fusehash"]["scores"]}
    examples = run(python, "-c", DOCTESTS, cwd=folder).strip().splitlines()[-1]
    seconds = time.perf_counter() - began
    print(f"Python {name}: the demo runs (MAP under HN {scores['HN']:.3f}), {examples}; {seconds:.0f} s.")


def environment(folder: Path, interpreter: Path) -> Path:
    """The interpreter of a new virtual environment."""
    run(interpreter, "-m", "venv", folder)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def run(*command: object, cwd: Path | None = None) -> str:
    """The output of a command; a failure ends the check with what the command said."""
    environment_of_others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment_of_others, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stdout[-4000:] + done.stderr[-4000:]
        sys.exit(f"FAILED: {' '.join(words[:4])} ... ended with {done.returncode}:\n{said}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
