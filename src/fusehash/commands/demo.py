"""`fusehash demo`: see in seconds what codes do, without any file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusehash.commands import inputs
from fusehash.commands.evaluate import footnotes, run_all, score_table
from fusehash.commands.terminal import print_json, stdout

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fusehash.datasets import SyntheticDataset
    from fusehash.hashers.base import CrossModalHasher

EXAMPLE = """Example: fusehash demo --bits 32"""

CLASSES = ("harbour", "orchard", "glacier", "bazaar", "canyon", "workshop", "meadow", "observatory")
SEEDS = (0, 1, 2)
TOP = 5


def demo(bits: inputs.Bits = 32, as_json: inputs.Json = False) -> None:
    """Learn from embedded paired data, print MAP beside controls, and answer one query in each direction."""
    models = {
        name: inputs.make_hasher(name, bits=bits, preset=None, seed=None, params={})
        for name in ("agsfh", "regression", "random")
    }
    data = demo_data()
    results = run_all(models, data, k=50, ties="expected", seeds=SEEDS)
    model = models["agsfh"].set_params(random_state=SEEDS[0]).fit(data.views.rows(data.train))
    answers = [ask(model, data, number, *views) for number, views in enumerate((("image", "text"), ("text", "image")))]
    chance = chance_map(data)
    if as_json:
        scores = {name: result.to_dict() for name, result in results.items()}
        print_json({"results": scores, "oracle": data.oracle_map(50), "chance": chance, "queries": answers})
        return
    console = stdout()
    console.print(
        f"{data.views.n_rows:,} made-up items in {len(CLASSES)} classes, each seen twice: "
        "as an image (64 numbers) and as a text (32 numbers)."
    )
    console.print(f"Learned: codes of {bits} bits in which images and texts of one class lie close together.\n")
    console.print(score_table(results, title="MAP@50: how often what is found is of the query's class"))
    console.print(
        f"Chance: {chance:.3f}. A ranking that knows all that is hidden from the methods: {data.oracle_map(50):.3f}."
    )
    for line in footnotes(next(iter(results.values())), data):
        console.print(line, soft_wrap=True, markup=False)
    for answer in answers:
        console.print()
        show(console, answer)
    console.print("\nNext: fusehash fit --help", soft_wrap=True)


def demo_data() -> SyntheticDataset:
    """Generated data of a size that is learned in a second."""
    import dataclasses

    from fusehash.datasets import make_paired

    data = make_paired(1200, n_classes=len(CLASSES), separation=6.0, noise=0.3, n_query=200, n_train=600, name="demo")
    return dataclasses.replace(data, label_names=CLASSES)


def chance_map(data: SyntheticDataset) -> float:
    """MAP@50 of codes that are all the same: what an arbitrary order reaches."""
    import numpy as np

    from fusehash.evaluation import mean_average_precision

    query, database = (np.zeros((rows.size, 1), dtype=np.uint8) for rows in (data.query, data.database))
    labels = data.labels[data.query], data.labels[data.database]
    return float(mean_average_precision(query, database, labels, k=50, ties="expected"))


def ask(model: CrossModalHasher, data: SyntheticDataset, number: int, asked: str, searched: str) -> dict[str, Any]:
    """The items of the database nearest to one query, each known by one view only."""
    import numpy as np

    from fusehash import bits

    row = int(data.query[number])
    code = model.encode(data.views[asked][[row]], view=asked)
    codes = model.encode(data.views[searched][data.database], view=searched)
    distances = np.bitwise_count(code ^ codes).sum(axis=1)
    nearest = np.argsort(distances, kind="stable")[:TOP]

    def strip(packed: Any) -> str:
        return "".join("1" if sign > 0 else "0" for sign in bits.unpack(packed[None], model.n_bits)[0])

    def named(item: int) -> str:
        return CLASSES[data.labels[item]]

    return {
        "query": {"view": asked, "row": row, "class": named(row), "code": strip(code[0])},
        "database": {"view": searched, "items": int(data.database.size)},
        "found": [
            {
                "row": int(data.database[place]),
                "class": named(data.database[place]),
                "distance": int(distances[place]),
                "relevant": bool(data.labels[data.database[place]] == data.labels[row]),
                "code": strip(codes[place]),
            }
            for place in nearest
        ],
    }


def show(console: Console, answer: dict[str, Any]) -> None:
    """One query and what it found, for human eyes."""
    from rich.table import Table

    query, database = answer["query"], answer["database"]
    plain = not console.encoding.lower().startswith("utf")
    tick, cross = ("yes", "no") if plain else ("✓", "✗")
    asked = f"{query['view']} {query['row']}"
    title = f"A query: {asked} ({query['class']}) among {database['items']:,} {database['view']}s"
    table = Table(title=title, title_justify="left")
    for header in ("", "item", "class", "same", "distance", "code"):
        table.add_column(header, justify="right" if header == "distance" else "left", no_wrap=True)
    own = _strip(query["code"], query["code"], plain)
    table.add_row("query", asked, query["class"], "", "", own, end_section=True)
    for place, item in enumerate(answer["found"], start=1):
        mark = f"[green]{tick}[/]" if item["relevant"] else f"[red]{cross}[/]"
        strip = _strip(item["code"], query["code"], plain)
        table.add_row(
            str(place), f"{database['view']} {item['row']}", item["class"], mark, str(item["distance"]), strip
        )
    console.print(table)


def _strip(code: str, like: str, plain: bool) -> Text:
    """A code as a strip of bits; those that differ are red."""
    from rich.text import Text

    signs = {"1": "#", "0": "."} if plain else {"1": "█", "0": "░"}
    text = Text()
    for bit, other in zip(code, like, strict=True):
        text.append(signs[bit], style="" if bit == other else "red")
    return text
