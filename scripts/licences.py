"""Write which licences the packages of the environment have, from what they say themselves."""

import argparse
import re
from pathlib import Path

from brio_core.system.cli import run

HEAD = """\
# Licences of what `make` installs

`make lock` writes this page from what the packages say of themselves. BRIO itself has the licence
in `LICENSE`. What only the CUDA build of torch brings is listed where that build is installed.

| Package | Version | Licence |
|---|---|---|
"""
_CLASSIFIER = "License :: OSI Approved :: "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--constraints", type=Path, required=True, help="names and versions")
    parser.add_argument("--out", type=Path, required=True, help="page to write")
    arguments = parser.parse_args()

    from importlib.metadata import PackageNotFoundError, metadata

    from brio_core.system.files import write_text

    rows = []
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", arguments.constraints.read_text("utf-8"), re.M)
    for name, _ in sorted(pins, key=lambda pin: pin[0].lower()):
        try:
            about = metadata(name)
        except PackageNotFoundError:
            continue
        version = about["Version"].partition("+")[0]
        rows.append(f"| {about['Name']} | {version} | {licence(about)} |\n")
    write_text(arguments.out, HEAD + "".join(rows))


def licence(about) -> str:
    """The SPDX expression, else what classifiers say, else the first line of the text."""
    if about.get("License-Expression"):
        return about["License-Expression"]
    named = [one for one in about.get_all("Classifier", []) if one.startswith(_CLASSIFIER)]
    if named:
        return ", ".join(one.removeprefix(_CLASSIFIER) for one in named)
    lines = (about.get("License") or "not stated").strip().splitlines()
    return lines[0].replace("|", " ")[:60]


if __name__ == "__main__":
    run(main)
