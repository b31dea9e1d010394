"""Draw a figure of the catalogue as PDF and PNG."""

from brio_core.reporting.catalogue import read_arguments
from brio_core.system.cli import run


def main() -> None:
    given, prefix = read_arguments("figures", __doc__)

    from brio_core.reporting.plotting import save

    save(given.make(), given, prefix)


if __name__ == "__main__":
    run(main)
