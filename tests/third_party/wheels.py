"""A wheel of the example package, made by hand so that pip can install it without a network."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

EXAMPLE = Path(__file__).parent / "example"


def install(folder: Path) -> None:
    """Install the example package into a folder, by pip."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    wheel, info = folder.parent / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n{key} = {value}" for group, entries in groups for key, value in entries.items()]
    files = {
        f"{name}/__init__.py": (EXAMPLE / name / "__init__.py").read_text(encoding="utf-8"),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join(lines),
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, text=True)
