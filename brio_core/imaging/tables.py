"""Text tables as users keep them: every cell is text, a missing cell is ``n/a``."""

from pathlib import Path

from brio_core.errors import BrioError
from brio_core.files import write_text

MISSING = "n/a"
_MISSING_SPELLINGS = {"", "n/a", "na", "nan", "null", "[]", "-9999", "-9999.0"}


def read_table(path: str | Path, sheet: str | None = None):
    """Read a .csv, a sheet of an .xlsx, or a tab-separated table.

    Cells are stripped text, and all spellings of a missing value become ``n/a``.
    """
    import pandas as pd

    path = Path(path)
    try:
        if path.suffix == ".xlsx":
            table = _read_sheet(path, sheet)
        else:
            separator = "," if path.suffix == ".csv" else "\t"
            table = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise BrioError(f"{path} cannot be read as a table ({error}); repair the file") from None
    table.columns = table.columns.astype(str).str.strip()
    return table.map(plain)


def _read_sheet(path: Path, sheet: str | None):
    """One sheet, by default the first; whole numbers stay without a decimal point."""
    from zipfile import BadZipFile

    import pandas as pd

    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            name = book.sheet_names[0] if sheet is None else sheet
            if name not in book.sheet_names:
                raise BrioError(
                    f"{path} has no sheet {name!r}, only {', '.join(book.sheet_names)}; "
                    "put the original file there or name its sheets"
                )
            return pd.read_excel(book, name, dtype=object, keep_default_na=False)
    except (BadZipFile, KeyError, ValueError) as error:
        raise BrioError(f"{path} cannot be read as .xlsx ({error}); repair the file") from None


def plain(cell: object) -> str:
    """One cell as text without line breaks, tabs or spaces around it."""
    text = " ".join(str(cell).split())
    return MISSING if text.lower() in _MISSING_SPELLINGS else text


def refuse_formula(text: str, where: str) -> None:
    """Raise if a spreadsheet that opens our tables would run ``text`` as a formula."""
    if len(text) > 1 and text[0] in "=@+-" and not _is_number(text):
        raise BrioError(f"{where} is {text!r}, which a spreadsheet takes for a formula; rename it")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_table(path: str | Path, columns: tuple[str, ...], rows: list[dict]) -> None:
    """Write a tab-separated table in one step."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(str(row[column]) for column in columns) for row in rows]
    write_text(path, "\n".join(lines) + "\n")
