"""The order of all modules: a module imports only from modules above it. `python tests/house.py` draws the tree.

test_house.py checks the order and that docs/architecture.md shows this tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fusehash"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- tree: written by tests/house.py -->\n", "<!-- end of tree -->\n"

# One line per folder; the package itself comes last.
ORDER: list[str] = """
version errors trust forks extras files.values files.atomic files.tensors files
sqlite.kinds sqlite.connections sqlite.held sqlite.checks sqlite.database sqlite.creation sqlite.writers
sqlite.crossing sqlite
parameters console
numerics numerics.arrays numerics.compiled numerics.memory numerics.parallel numerics.linalg numerics.sparse
numerics.anchors numerics.rotation numerics.features numerics.word_weights numerics.simplex.triton
numerics.simplex
bits views
streams.stored streams.writers streams.npy streams.chunked
streams.zarr.codecs streams.zarr.metadata streams.zarr.storage streams.zarr.chunks streams.zarr
streams.hdf5 streams.dask_arrays streams.parquet.pages streams.parquet streams.formats
streams.blocks streams.row_passes streams.cluster streams
encoders.base encoders.reading encoders.histograms encoders.images encoders.texts encoders.downloads encoders.clip
encoders.sentence encoders.onnx encoders.weights encoders.graph encoders.packaged encoders encoders.offers
datasets.base datasets.matlab datasets.arrays datasets.folders datasets.splits datasets.photos datasets.emoji
datasets.synthetic datasets.loading datasets.verification datasets
evaluation.tie_kernels evaluation.kernels evaluation.ranking evaluation.relevance evaluation.curves
evaluation.map_rules evaluation.metrics evaluation.result evaluation.protocols evaluation.runs evaluation.embeddings
evaluation.inspection evaluation
hashers.encoding hashers.base hashers.linear hashers.kernel hashers.canonical hashers.controls hashers.catalogue
hashers.quantizers hashers.quantizers.joint hashers.quantizers.sign hashers.quantizers.centered_sign
hashers.quantizers.itq hashers.quantizers.rabitq hashers.quantizers.pq
hashers.agsfh.clusters hashers.agsfh.graph hashers.agsfh.paper hashers.agsfh
hashers.fusehash.nested hashers.fusehash.best_bits hashers.fusehash.fitted hashers.fusehash.floats
hashers.fusehash.spectrum
hashers.fusehash.refinement hashers.fusehash.closed_form hashers.fusehash.own_space
hashers.fusehash.tuning.agreement hashers.fusehash.tuning.measures hashers.fusehash.tuning.trials
hashers.fusehash.tuning.fusion hashers.fusehash.tuning.walk hashers.fusehash.tuning.references hashers.fusehash.tuning
hashers.fusehash.kept_sums hashers.fusehash.frame hashers.fusehash.partial_fit
hashers.fusehash
hashers.baselines hashers.baselines.joint_features hashers.baselines.fsh hashers.baselines.rfdh
hashers.baselines.jimfh hashers.baselines.cmfh hashers.baselines.imh hashers.baselines.lssh hashers.baselines.cvh
hashers.baselines.cca_itq hashers.baselines.agh hashers.baselines.scm hashers.baselines.seph
hashers.reconstructed hashers.reconstructed.pdh hashers.reconstructed.csgh hashers.reconstructed.bgdh
hashers.reconstructed.jchr hashers.reconstructed.fdch hashers.reconstructed.adch hashers.reconstructed.scvh
hashers.deep hashers.deep.similarities hashers.deep.pixels hashers.deep.recording hashers.deep.training
hashers.deep.skeleton hashers.deep.dcmh hashers.deep.ddcmh hashers.deep.dbrc hashers.deep.djsrh hashers.deep.jdsh
hashers.deep.dgcpn hashers.deep.cirh hashers.deep.ucch
hashers
testing.subject testing.checks testing
search.counting search.ids search.rows search.rounding search.projections search.factors
search.engines search.engines.kernel search.engines.scan search.engines.tiles search.engines.look_ups
search.engines.row_look_ups search.engines.scores search.engines.weighted
search.engines.bounds search.engines.estimates
search.engines.numpy
search.engines.multi_index.look_up search.engines.multi_index.segments search.engines.multi_index.kept
search.engines.multi_index
search.engines.faiss search.engines.torch.kernels search.engines.torch.cascade search.engines.torch.select
search.engines.torch.weighted search.engines.torch
search.near.passes search.near.pairs search.near.groups search.near
search.vectors.kernels search.vectors search.vectors.earlier search.vectors.state search.vectors.file
search.store search.blocks search.file
search.servers search.servers.address search.servers.postgres search.servers.milvus
search.arguments search.contents search.warming search.index
search.exchange.codes search.exchange.rows search.exchange.numpy search.exchange.faiss search.exchange.usearch
search.exchange.pgvector search.exchange.milvus search.exchange.qdrant search.exchange.elasticsearch
search.exchange.arrow search.exchange.formats search.exchange
search
dedupe.perceptual dedupe.pictures dedupe.removal dedupe.page dedupe
retriever
plots.drawing plots.codes plots.rankings plots.results plots.embeddings plots
experiments experiments.methods experiments.store.settings experiments.store.records experiments.store.formats
experiments.store.results experiments.store experiments.spec.plan experiments.spec.reading experiments.spec
experiments.embeddings experiments.metrics
experiments.examples experiments.significance
experiments.tables.printed experiments.tables.layout experiments.tables.terminal experiments.tables.csv
experiments.tables.latex experiments.tables experiments.findings experiments.figures experiments.report
experiments.workers experiments.runner experiments.scoring experiments.leaderboard
integrations integrations.sklearn integrations.dataframes integrations.duckdb integrations.datasets
integrations.rows integrations.vector_codes integrations.documents integrations.langchain
integrations.llama_index integrations.haystack
collection.dates collection.items
collection.store.settings collection.store.state collection.store.rows collection.store.thumbnails
collection.store.codes collection.store.kept collection.store.tables collection.store
collection.features collection.encoding collection.bridge collection.training
collection.catalogue
collection.queries collection.queries.language collection.queries.words collection.queries.filters
collection.queries.neighbors collection.queries.calibration collection.changes collection.generations
collection.originals collection.likeness collection.overview collection.searching
collection.question collection.answering
collection.opened collection.reading collection.collection collection
app.errors app.guard app.connections app.pools app.cache app.records
app.routes.common app.routes.searching app.routes.items app.routes.overviews app.routes.writing app.routes.pages
app.routes app app.server
commands commands.wording commands.terminal commands.inputs commands.locations commands.models commands.evaluate
commands.quantize commands.collection commands.hits commands.index commands.retrievers commands.search
commands.contents commands.inspect
commands.dedupe commands.encoders commands.bench commands.data commands.serve
commands.demo
cli fusehash
""".split()  # noqa: SIM905

# What each folder is for; a module says so itself, in the first line of its docstring.
FOLDERS = {
    "files": "safetensors files and atomic writes",
    "sqlite": "the only home of SQLite: files opened with care, every failure one sentence",
    "numerics": "arrays, linear algebra, anchors and rotations; knows nothing about views or methods",
    "numerics/simplex": "projection onto the simplex and Algorithm 1, on a CPU and on a GPU",
    "streams": "views that are larger than memory, and passes over rows by threads, a GPU or a cluster",
    "streams/parquet": "Parquet files, copied to a temporary `.npy` file once",
    "streams/zarr": "zarr arrays, read by code of our own",
    "encoders": "raw images and texts -> features",
    "datasets": "benchmark files, folders of photos, emoji, generated data",
    "evaluation": "metrics with ties done right, and the only home of the four protocols",
    "hashers": "one method = one class",
    "hashers/quantizers": "what databases do with given embeddings, as peers",
    "hashers/agsfh": "the method of the paper",
    "hashers/fusehash": "our own method, the default",
    "hashers/fusehash/tuning": "settings chosen on held-out training rows, without labels",
    "hashers/baselines": "the methods of the literature",
    "hashers/deep": "networks on features, trained with PyTorch",
    "hashers/reconstructed": "methods built from a sentence or an abstract",
    "testing": "the contracts of all hashers, for a method of your own",
    "search": "HammingIndex: exact search in memory, in a file or on a server",
    "search/engines": "what answers a search",
    "search/engines/multi_index": "look-up tables: exact and sublinear",
    "search/engines/torch": "the search on a GPU",
    "search/vectors": "vectors next to codes, in memory and in a file of their own",
    "search/exchange": "codes to and from other libraries and databases",
    "search/near": "all near pairs, and groups of near-duplicates",
    "search/servers": "an index on PostgreSQL or Milvus",
    "dedupe": "near-duplicate pictures: hashes, groups, reports, removal",
    "plots": "pictures of codes, rankings and results",
    "integrations": "adapters: LangChain, LlamaIndex, Haystack, datasets, data frames, DuckDB, scikit-learn",
    "experiments": "specifications, stored runs, reports",
    "experiments/spec": "what to run, as a YAML file",
    "experiments/store": "raw results on disk, one file per run, found by their settings",
    "experiments/tables": "tables of means and spreads next to printed values",
    "collection": "a folder with pictures, texts, codes and models",
    "collection/store": "the files of a collection, every row with a checksum",
    "collection/queries": "what a search by words asks for, and what its scores mean",
    "app": "the web page and its HTTP API",
    "app/routes": "what the app answers",
    "commands": "the command line",
}


def modules() -> dict[str, Path]:
    """Every module by its name without `fusehash.`; the package itself is `fusehash`."""
    named = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "fusehash"] = path
    return named


def imports_of(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of fusehash that a file imports, at the top, inside functions or for types."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fusehash":
            assert node.module is not None
            package = node.module.partition(".")[2]
            for name in node.names:
                inside = f"{package}.{name.name}".strip(".")
                yield inside if inside in known else package or "fusehash"
        elif isinstance(node, ast.Import):
            yield from (name.name.partition(".")[2] for name in node.names if name.name.startswith("fusehash."))


def summary_of(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0].rstrip(".")


def tree() -> str:
    """The modules in order, one line each, indented by folder."""
    known, lines, shown = modules(), ["    src/fusehash/"], set()
    for name in ORDER:
        path = known[name].relative_to(SOURCE)
        for depth, folder in enumerate(reversed([*path.parents][:-1]), start=1):
            if folder not in shown:
                shown.add(folder)
                lines.append(_line(depth, f"{folder.name}/", FOLDERS[folder.as_posix()]))
        if path.name != "__init__.py":
            lines.append(_line(len(path.parts), path.name, summary_of(known[name])))
    return "\n".join(lines) + "\n"


def _line(depth: int, name: str, text: str) -> str:
    start = f"    {'  ' * depth}{name}"
    line = f"{start:<30} {text}"
    return line if len(line) <= 118 else line[:115].rsplit(" ", 1)[0].rstrip(",;:") + " ..."


def page_with_tree() -> str:
    """docs/architecture.md with the current tree."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + "\n" + tree() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_tree(), encoding="utf-8")
