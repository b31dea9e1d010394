"""What `make soak` did, from the records of its parts, into docs/reliability.md.

python benchmarks/soak.py .soak/*.xml
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from common import table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- Lines that `make soak` writes. -->", "<!-- End of these lines. -->"
UNITS = {"kills": "terminations", "inputs": "random inputs", "runs": "runs with a fault"}


def label(name: str) -> str:
    """A test's name in words; one of many stages is named."""
    what, _, detail = name.removeprefix("test_").rstrip("]").partition("[")
    return f"`{detail}`" if what == "kills_of_one_stage" else what.replace("_", " ")


def spent(number: float) -> str:
    """Two digits, or a dash where a part has not measured it."""
    return "–" if math.isnan(number) else f"{number:.2g}"


def lines(records: list[Path]) -> str:
    """The part of the page; only parts whose tests all passed are figures."""
    counts: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0])
    for path in records:
        for case in ElementTree.parse(path).iter("testcase"):
            found = {one.get("name"): float(one.get("value")) for one in case.iter("property")}
            unit = next((unit for unit in UNITS if found.get(unit)), None)
            if unit is None or case.find("failure") is not None:
                sys.exit(f"error: {path}: {case.get('name')} did not pass; mend it, run it again")
            cell = counts[unit, label(case.get("name"))]
            cell[0] += found[unit]
            cell[1] += found.get("cpu_seconds", math.nan)
    rows, totals = [], []
    for unit, words in UNITS.items():
        ours = {key[1]: value for key, value in counts.items() if key[0] == unit}
        rows += [(name, f"{n:,.0f} {words}", spent(s / n)) for name, (n, s) in sorted(ours.items())]
        totals.append(f"{sum(n for n, _ in ours.values()):,.0f} {words}")
    hours = spent(sum(seconds for _, seconds in counts.values()) / 3600)
    said = f"Parts: {len(records)}. Differences: 0. CPU hours: {hours}. {', '.join(totals)}."
    return f"{said}\n\n{table(('test', 'number', 'CPU seconds each'), rows)}"


def main() -> None:
    """Write the page again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    found = lines(parser.parse_args().records)
    if not mark:
        sys.exit(f"error: {PAGE} has no line {BEGIN}")
    PAGE.write_text(f"{before}{BEGIN}\n{found}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
