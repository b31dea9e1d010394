"""List pinned versions with known vulnerabilities, as the database of osv.dev has them."""

import argparse
import json
import re
import sys
import urllib.request
from pathlib import Path

from brio_core.system.cli import run
from brio_core.system.errors import BrioError

DATABASE = "https://api.osv.dev/v1/querybatch"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("constraints", type=Path, help="names and versions")
    parser.add_argument("--database", default=DATABASE, help="address that takes the questions")
    arguments = parser.parse_args()
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", arguments.constraints.read_text("utf-8"), re.M)
    known = {f"{name} {version}": ids for (name, version), ids in ask(arguments.database, pins)}
    for pin, ids in known.items():
        print(f"{pin}: {', '.join(ids)}")
    print(f"{len(known)} of {len(pins)} versions have known vulnerabilities")
    if known:
        sys.exit(1)


def ask(database: str, pins: list[tuple[str, str]]) -> list[tuple[tuple[str, str], list[str]]]:
    """Pins with the names of their vulnerabilities, if they have any."""
    package = [{"name": name, "ecosystem": "PyPI"} for name, _ in pins]
    queries = [{"package": one, "version": pin[1]} for one, pin in zip(package, pins)]
    content = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(database, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            results = json.load(answer)["results"]
        found = [[one["id"] for one in result.get("vulns", [])] for result in results]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrioError(
            f"{database} could not be asked for vulnerabilities ({error}); nothing is known of "
            "these versions: try again where the network reaches it"
        ) from None
    if len(found) != len(pins):
        raise BrioError(f"{database} answered {len(found)} of {len(pins)} questions; try again")
    return [(pin, ids) for pin, ids in zip(pins, found) if ids]


if __name__ == "__main__":
    run(main)
