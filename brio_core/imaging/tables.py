"""Text tables as users keep them: every cell is text, a missing cell is ``n/a``."""

from pathlib import Path

from brio_core.errors import BrioError
from brio_core.files import write_text

MISSING = "n/a"
_MISSING_SPELLINGS = {"", "n/a", "na", "nan", "null", "-9999", "-9999.0"}


def read_table(path: str | Path, separator: str = "\t"):
    """Read a table; cells are stripped text and all spellings of a missing value become ``n/a``."""
    import pandas as pd

    try:
        table = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise BrioError(f"{path} cannot be read as a table ({error}); repair the file") from None
    table.columns = table.columns.str.strip()
    return table.map(lambda cell: plain(cell))


def plain(cell: object) -> str:
    """One cell as stripped text."""
    text = str(cell).strip()
    return MISSING if text.lower() in _MISSING_SPELLINGS else text


def write_table(path: str | Path, columns: tuple[str, ...], rows: list[dict]) -> None:
    """Write a tab-separated table in one step."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(str(row[column]) for column in columns) for row in rows]
    write_text(path, "\n".join(lines) + "\n")
