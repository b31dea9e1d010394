"""A `conda` that solves and installs from a local channel of empty packages, by way of py-rattler.

It knows the few commands that Snakemake calls. Packages have the names and versions of envs/, but
nothing in them; `python` hands over to the interpreter that runs the tests. So activation,
PYTHONPATH and the paths of scripts are tried for real, and whether conda-forge has these packages
is not.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import yaml

CHANNEL = "channel"
# Writes down what it is called with, in the environment that is active.
PYTHON = f"""#!/bin/sh
echo "$@" >> "$CONDA_PREFIX/used"
exec {sys.executable} "$@"
"""


def build_channel(folder: Path, environments: list[Path]) -> Path:
    """Empty packages for everything that the environments name, in the lowest version allowed."""
    import rattler.index
    from rattler_build import assemble_package

    channel = folder / CHANNEL
    (channel / "noarch").mkdir(parents=True)
    wanted = {
        tuple(line.split(",")[0].split(" >="))
        for path in environments
        for line in yaml.safe_load(path.read_text())["dependencies"]
    }
    for name, version in sorted(wanted):
        content = folder / "content" / name
        content.mkdir(parents=True)
        if name == "python":
            program = content / "bin" / "python"
            program.parent.mkdir()
            program.write_text(PYTHON)
            program.chmod(0o755)
        assemble_package(
            name, version, "noarch", "0", channel / "noarch", files_dir=content, noarch="generic"
        )  # fmt: skip
    asyncio.run(rattler.index.index_fs(channel))
    return channel


async def create(channel: Path, file: Path, prefix: Path) -> None:
    """`conda env create`."""
    import rattler

    specs = yaml.safe_load(file.read_text())["dependencies"]
    records = await rattler.solve(
        sources=[rattler.Channel(channel.as_uri())], specs=specs, platforms=["noarch"]
    )
    await rattler.install(records, target_prefix=prefix)


def main() -> None:
    root = Path(os.environ["CONDA_STAND_IN"])
    words = sys.argv[1:]
    if words[:1] == ["info"]:
        print(
            json.dumps(
                {"conda_prefix": str(root), "root_prefix": str(root), "platform": "linux-64"}
            )
        )
    elif words == ["--version"]:
        print("conda 24.9.2")
    elif words[:1] == ["config"]:
        print(json.dumps({"get": {"channel_priority": "strict"}}))
    elif words[:2] == ["env", "create"]:
        option = lambda name: Path(words[words.index(name) + 1])  # noqa: E731
        asyncio.run(create(root / CHANNEL, option("--file"), option("--prefix")))
    sys.stdout.flush()
    # py-rattler sometimes crashes at the end of Python.
    os._exit(0)


if __name__ == "__main__":
    main()
