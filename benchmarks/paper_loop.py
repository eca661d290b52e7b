"""The paper's loop: ours against a plain NumPy transcription of the paper, and ours as the data grow.

    python benchmarks/paper_loop.py            # everything, a few minutes
    python benchmarks/paper_loop.py --quick    # the comparison alone, fewer repetitions

Both run in this process, on the same data, in turns; the best of several repetitions counts. The transcription is
what the paper writes down (Algorithms 1 and 2, corrected): whole dense matrices, a sort in every projection, a full
eigendecomposition, BLAS on all cores. The second table runs in child processes, so that peak memory is each one's own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.linalg import eigh

from fusehash import hashers
from runs import described, result_path, store

# The setting of the comparison, and the published parameters.
N, DIMS, P, K, BITS, C = 5_000, {"image": 150, "text": 500}, 900, 45, 32, 60
GAMMA_1, GAMMA_2, GAMMA_3, LAMBDA = 0.01, 10.0, 0.01, 300.0
INNER_TOL, INNER_MAX = 1e-4, 50
GROWTH, GROWTH_DIMS = (20_000, 60_000, 184_577), {"image": 500, "text": 1_000}


def make_views(n: int, dims: dict[str, int], seed: int = 0, block: int = 5_000) -> dict[str, np.ndarray]:
    """Float32 views of a shared 20-dimensional position, made block by block."""
    rng = np.random.default_rng(seed)
    maps = {name: rng.standard_normal((20, d)).astype(np.float32) / np.float32(4.5) for name, d in dims.items()}
    views = {name: np.empty((n, d), np.float32) for name, d in dims.items()}
    for start in range(0, n, block):
        rows = slice(start, min(start + block, n))
        position = rng.standard_normal((rows.stop - start, 20), dtype=np.float32)
        for name, view in views.items():
            noise = rng.standard_normal((rows.stop - start, dims[name]), dtype=np.float32)
            view[rows] = np.tanh(position @ maps[name]) + np.float32(0.3) * noise
    return views


# -- the transcription -----------------------------------------------------------------------------------------------


def project_by_sorting(Y: np.ndarray) -> np.ndarray:
    """Projection of every row onto the simplex: sort, cumulate, cut (Duchi et al. 2008)."""
    ordered = -np.sort(-Y, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1.0
    rank = np.arange(1, Y.shape[1] + 1)
    count = np.sum(ordered - excess / rank > 0, axis=1)
    tau = excess[np.arange(len(Y)), count - 1] / count
    return np.maximum(Y - tau[:, None], 0.0)


def anchor_graph(X: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Eq. 14, dense."""
    D = (X**2).sum(1)[:, None] - 2 * X @ anchors.T + (anchors**2).sum(1)
    order = np.argsort(D, axis=1)
    nearest = np.take_along_axis(D, order[:, : K + 1], axis=1)
    weights = nearest[:, -1:] - nearest[:, :-1]
    A = np.zeros_like(D)
    np.put_along_axis(A, order[:, :K], weights / weights.sum(1, keepdims=True), axis=1)
    return A


def sgn(X: np.ndarray) -> np.ndarray:
    return np.where(X > 0, 1.0, -1.0)


class Transcription:
    """Algorithm 2 with Algorithm 1 inside, one `iterate` for one iteration."""

    def __init__(self, views: dict[str, np.ndarray], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.X = [X.astype(np.float64) - X.mean(axis=0, dtype=np.float64) for X in views.values()]
        n = len(self.X[0])
        chosen = rng.choice(n, P, replace=False)
        self.A = np.prod([anchor_graph(X, X[chosen]) for X in self.X], axis=0)
        mass = self.A.sum(axis=0)
        root = np.where(mass > 0, 1 / np.sqrt(np.where(mass > 0, mass, 1.0)), 0.0)
        E = (self.A.T @ self.A) * np.outer(root, root)
        self.V = eigh(E)[1][:, -C:]
        self.scale = np.ones(P)
        self.B, self.Bs = sgn(rng.standard_normal((n, BITS))), sgn(rng.standard_normal((P, BITS)))
        self.W = [rng.standard_normal((X.shape[1], BITS)) for X in self.X]
        self.grams = [X.T @ X for X in self.X]

    def s_step(self) -> np.ndarray:
        """Algorithm 1 for all rows at once: min s'Hs - l's on the simplex."""
        Vt = self.scale[:, None] * self.V
        H = GAMMA_2 * np.eye(P) - Vt @ Vt.T
        linear = GAMMA_1 * self.A + GAMMA_3 * self.B @ self.Bs.T
        step = 1.0 / (2.0 * np.abs(np.linalg.eigvalsh(H)).max())
        S = project_by_sorting(np.linalg.solve(2 * H, linear.T).T)  # Eq. 27
        Z, c = S, 1.0
        for _ in range(INNER_MAX):
            new = project_by_sorting(Z - step * (2 * Z @ H - linear))
            c_next = (1 + np.sqrt(1 + 4 * c * c)) / 2
            Z = new + (c - 1) / c_next * (new - S)
            change = np.linalg.norm(new - S, axis=1) / np.linalg.norm(new, axis=1)
            S, c = new, c_next
            if change.max() <= INNER_TOL:
                break
        return S

    def iterate(self) -> float:
        """One pass of Algorithm 2; returns the objective of Eq. 19."""
        S = self.s_step()
        mass = S.sum(axis=0)
        self.scale = np.where(mass > 0, 1 / np.sqrt(np.where(mass > 0, mass, 1.0)), 0.0)
        E = (S.T @ S) * np.outer(self.scale, self.scale)
        w, Q = eigh(E)
        self.V = Q[:, -C:]
        self.B = sgn(GAMMA_3 * S @ self.Bs + 2 * LAMBDA * sum(X @ W for X, W in zip(self.X, self.W, strict=True)))
        self.Bs = sgn(S.T @ self.B)
        for m, (X, G) in enumerate(zip(self.X, self.grams, strict=True)):
            self.W[m] = np.linalg.solve(G + 1e-6 * np.trace(G) / len(G) * np.eye(len(G)), X.T @ self.B)
        regression = sum(np.sum((self.B - X @ W) ** 2) for X, W in zip(self.X, self.W, strict=True))
        return float(
            C
            - w[-C:].sum()
            - GAMMA_1 * np.sum(self.A * S)
            + GAMMA_2 * np.sum(S * S)
            - GAMMA_3 * np.sum(self.B * (S @ self.Bs))
            + LAMBDA * regression
        )


# -- measuring -------------------------------------------------------------------------------------------------------


class Clock:
    """Seconds between the calls of a callback: one for each iteration."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.last = time.perf_counter()

    def __call__(self, step: int, total: int, message: str) -> None:
        now = time.perf_counter()
        if step > 1:  # the first also holds the set-up
            self.seconds.append(now - self.last)
        self.last = now


def ours(views: dict[str, np.ndarray], iterations: int, n_anchors: int = P) -> tuple[list[float], float, float]:
    """Seconds of every iteration, of the whole fit, and the last objective."""
    clock = Clock()
    started = time.perf_counter()
    model = hashers.make(
        "agsfh", n_bits=BITS, n_anchors=n_anchors, n_neighbors=K, n_clusters=C, max_iter=iterations,
        tol=0.0, random_state=0, callback=clock,
    ).fit(views)  # fmt: skip
    return clock.seconds, time.perf_counter() - started, float(model.objective_[-1])


def compare(repetitions: int) -> dict[str, object]:
    """Both in turns on the same data; the best iteration of each counts."""
    views = make_views(N, DIMS)
    ours(make_views(1_000, DIMS), 2, 100)  # compile
    reference = Transcription(views, 0)
    plain, fast = [], []
    for _ in range(repetitions):
        started = time.perf_counter()
        theirs_objective = reference.iterate()
        plain.append(time.perf_counter() - started)
        seconds, _, our_objective = ours(views, 4)
        fast += seconds
    return {
        "n": N, "dims": DIMS, "anchors": P, "bits": BITS, "plain_numpy_s": plain, "fusehash_s": fast,
        "plain_numpy_best_s": min(plain), "fusehash_best_s": min(fast), "ratio": min(plain) / min(fast),
        "ratio_of_medians": float(np.median(plain) / np.median(fast)),
        "objectives": [theirs_objective, our_objective],
    }  # fmt: skip


def resident() -> int:
    """Bytes of memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grow_one(n: int, iterations: int) -> dict[str, object]:
    """One size, in its own process: seconds an iteration, and the peak of memory above the data themselves."""
    ours(make_views(2_000, GROWTH_DIMS), 2)  # compile, and let the libraries allocate what they keep
    views = make_views(n, GROWTH_DIMS)
    before = resident()
    seconds, total, _ = ours(views, iterations)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "n": n, "dims": GROWTH_DIMS, "anchors": P, "bits": BITS, "seconds": seconds, "best_s": min(seconds),
        "fit_s": total, "data_mib": sum(view.nbytes for view in views.values()) / 2**20,
        "extra_mib": max(peak - before, 0) / 2**20, "dense_s_mib": n * P * 8 / 2**20,
    }  # fmt: skip


def grow(n: int, iterations: int) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", str(n), "--iterations", str(iterations)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def show(result: dict[str, object], console: Console) -> None:
    compared = result["comparison"]
    table = Table(title=f"Seconds an iteration: N = {N:,}, d = 150 + 500, P = {P}, {BITS} bits")
    for heading in ("", "best", "median"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("plain NumPy", f"{compared['plain_numpy_best_s']:.3f}", f"{np.median(compared['plain_numpy_s']):.3f}")
    table.add_row("fusehash", f"{compared['fusehash_best_s']:.3f}", f"{np.median(compared['fusehash_s']):.3f}")
    table.add_row("times faster", f"{compared['ratio']:.1f}", f"{compared['ratio_of_medians']:.1f}")
    console.print(table)
    if not result["growth"]:
        return
    table = Table(title=f"fusehash as the data grow: d = 500 + 1,000 (float32), P = {P}, {BITS} bits")
    for heading in (
        "N",
        "s / iteration",
        "µs / row",
        "fit",
        "data MiB",
        "peak above data MiB",
        "a dense S would be MiB",
    ):
        table.add_column(heading, justify="right")
    for row in result["growth"]:
        table.add_row(
            f"{row['n']:,}", f"{row['best_s']:.2f}", f"{1e6 * row['best_s'] / row['n']:.0f}", f"{row['fit_s']:.0f} s",
            f"{row['data_mib']:.0f}", f"{row['extra_mib']:.0f}", f"{row['dense_s_mib']:.0f}",
        )  # fmt: skip
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the comparison, fewer repetitions")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--iterations", type=int, default=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(grow_one(options.one, options.iterations)))
        return
    console = Console()
    result = {
        **described(),
        "comparison": compare(3 if options.quick else 6),
        "growth": [] if options.quick else [grow(n, options.iterations) for n in GROWTH],
    }
    show(result, console)
    if not options.quick:
        path = store(result_path("paper_loop"), result)
        console.print(f"written to {path}")


if __name__ == "__main__":
    main()
