"""Tests of the package as users install it, from the wheel, on each Python: `nox -l` lists them.

nox -s torch_free quickstart       on every Python of 3.11 to 3.13 that is there
nox -s tests-3.13                  the suite of `make test` on one Python
nox -s oldest newest               the same on the oldest, on the newest allowed dependencies
nox -s release                     what `make release` runs
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYTHONS = ["3.11", "3.12", "3.13"]
TORCH = "torch==2.13.0"  # installed first: PIP_EXTRA_INDEX_URL may name the index of CPU builds
NEEDS_TORCH = ("onnxscript", "tensorboard", "torch", "torchdata", "torchmetrics")
COMMANDS = re.findall(r"^(t2t-\S+) =", (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
ARTIFACT = ROOT / "tests" / "golden" / "before" / "joint_bilstm" / "artifact"

nox.needs_version = ">=2024.3"
nox.options.sessions = ["lint", "torch_free", "quickstart"]


@nox.session
def lint(session: nox.Session) -> None:
    """Checks format, lint, types and spelling."""
    session.install(TORCH)
    session.install("--editable", ".[dev]")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("codespell")


@nox.session(python=["3.11", "3.13"])
def tests(session: nox.Session) -> None:
    """Runs the suite of `make test`."""
    session.install(TORCH)
    session.install("--editable", ".[dev]")
    workers = ("-n", "2", "--dist=worksteal")
    chosen = session.posargs or ("-m", "not slow")
    session.run("python", "-m", "pytest", *workers, "-q", *chosen, env={"OMP_NUM_THREADS": "1"})


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """Runs the suite on the lowest versions that pyproject.toml allows, all together."""
    _suite(session, "--resolution=lowest-direct")


@nox.session(python="3.13")
def newest(session: nox.Session) -> None:
    """Runs the suite on the highest versions that pyproject.toml allows."""
    _suite(session, "--upgrade")


def _suite(session: nox.Session, *resolution: str) -> None:
    session.install("uv")
    session.run("uv", "pip", "install", *resolution, "--editable", ".[dev,bench]")
    chosen = session.posargs or ("-m", "not slow")
    session.run("python", "-m", "pytest", "-q", *chosen, env={"OMP_NUM_THREADS": "1"})


@nox.session(python=PYTHONS)
def torch_free(session: nox.Session) -> None:
    """Runs in the wheel, without torch, all that needs none: data, scores, artifacts, --help."""
    wheel = _wheel(session)
    session.install(*_requirements_without_torch(wheel))
    session.install("--no-deps", wheel)
    session.chdir(session.create_tmp())
    missing = "import importlib.util as i; assert not i.find_spec('torch'), 'torch is installed'"
    session.run("python", "-c", missing)
    for command in COMMANDS:
        session.run(command, "--help", silent=True)
    places = ("--data_dir=data", "--tmp_dir=tmp")
    session.run("t2t-datagen", "--problem=dates_to_iso", *places, "--overwrite", silent=True)
    session.run("t2t-data", "--problem=dates_to_iso", "--data_dir=data", silent=True)
    session.run("t2t-bleu", f"--translation={ROOT / 'LICENSE'}", f"--reference={ROOT / 'LICENSE'}")
    code = (
        "import sys, t2t_torch as t2t; "
        f"found = t2t.load({str(ARTIFACT)!r}).predict(['show me flights to boston']); "
        "print(found); assert found and 'torch' not in sys.modules"
    )
    session.run("python", "-c", code)


@nox.session(python=PYTHONS)
def quickstart(session: nox.Session) -> None:
    """Runs the commands of `make quickstart` from the wheel."""
    session.install(TORCH)
    session.install(_wheel(session))
    folder = Path(session.create_tmp()) / "quickstart"
    bin_dir = Path(session.bin)
    session.run(
        *("make", "--old-file=.venv/installed", "quickstart", f"BIN={bin_dir}", f"QUICK={folder}"),
        external=True,
    )


@nox.session
def docs(session: nox.Session) -> None:
    """Builds the site, strictly."""
    session.install(TORCH)
    session.install("--editable", ".[docs]")
    build = ("mkdocs", "build", "--strict", "--quiet", "--site-dir", session.create_tmp())
    session.run(*build, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def release(session: nox.Session) -> None:
    """Checks that this commit can be released; uploads nothing."""
    version = _checked_version(session)
    dist = ROOT / "dist"
    session.install("build", "twine")
    for old in dist.glob("*"):
        old.unlink()
    session.run("python", "-m", "build", "--outdir", str(dist), silent=True)
    made = sorted(str(path) for path in dist.iterdir())
    session.run("twine", "check", "--strict", *made)
    (wheel,) = dist.glob("*.whl")
    session.install(TORCH)
    session.install(str(wheel))
    session.chdir(session.create_tmp())
    installed = session.run(
        "python", "-c", "import t2t_torch; print(t2t_torch.__version__)", silent=True
    )
    if installed.strip() != version:
        session.error(f"the wheel has version {installed.strip()}, not {version}")
    for command in COMMANDS:
        session.run(command, "--help", silent=True)
    session.log(f"{version} can be released:  git tag v{version} && git push origin v{version}")


def _checked_version(session: nox.Session) -> str:
    """Returns the version, if the tree is clean and the changelog has its date."""
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    if changed.stdout:
        session.error(f"commit first:\n{changed.stdout}")
    source = (ROOT / "t2t_torch" / "__init__.py").read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"', source, re.M)
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## \[(.+?)\] - (.+)$", changelog, re.M)
    if newest is None or newest[1] != version:
        session.error(f"CHANGELOG.md: the first heading is not that of [{version}]")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", newest[2]):
        session.error(f"CHANGELOG.md: [{version}] has no date but {newest[2]!r}")
    return version


def _wheel(session: nox.Session) -> str:
    """Builds the wheel in the session's folder; returns its path."""
    folder = Path(session.create_tmp()) / "wheel"
    for old in folder.glob("*.whl"):
        old.unlink()
    session.run(
        "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)
    )
    (wheel,) = folder.glob("*.whl")
    return str(wheel)


def _requirements_without_torch(wheel: str) -> list[str]:
    """Returns the requirements of the wheel, and of its server, that do not need torch."""
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    lines = re.findall(r"^Requires-Dist: (.+)$", metadata, re.M)
    needed = []
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        name = re.match(r"[\w.-]+", requirement)[0].lower()
        if name not in NEEDS_TORCH and marker in ("", 'extra == "serve"'):
            needed.append(requirement)
    return needed
