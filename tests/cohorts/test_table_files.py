"""Text tables as users keep them: quotes, line breaks, separators too many."""

import gzip

import pytest

from brio_core.cohorts.cohort import read_table as read_own_table
from brio_core.cohorts.tables import read_table, write_table
from brio_core.system.errors import BrioError


def _table(path, text):
    path.write_text(text)
    return read_table(path).to_dict(orient="list")


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
def test_quoted_tables_are_read_without_their_quotes(tmp_path, name):
    rows = ['"id","site","note"', '"s1","A","a ""b"" c"', '"s2","","x y"', "s3,B,"]
    text = "\ufeff" + "\r\n".join(rows) + "\r\n"
    found = _table(tmp_path / name, text.replace(",", "\t") if name == "t.tsv" else text)
    assert found["id"] == ["s1", "s2", "s3"] and found["site"] == ["A", "n/a", "B"]
    assert found["note"] == ['a "b" c', "x y", "n/a"]
    assert list(found) == ["id", "site", "note"]


def test_commas_in_quotes_and_repeated_columns_stay(tmp_path):
    found = _table(tmp_path / "t.csv", 'id,note,note,\n\n   \ns1,"a, b",c\ns2,5" tall,,x\n')
    assert found["id"] == ["s1", "s2"] and found["note"] == ["a, b", '5" tall']
    assert found["note.1"] == ["c", "n/a"] and found["Unnamed: 3"] == ["n/a", "x"]


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("t.csv", 'id,note\ns1,x\ns2,"tall\ns3,y\ns4,"z\n', "column 'note' of line 3"),
        ("t.csv", 'id,note\n\ns1,"two\nlines"\n', "column 'note' of line 3"),
        ("t.csv", 'id,note\ns1,x\ns2,"tall', "column 'note' of line 3"),
        ("t.csv", 'id,"note\ns1,x\n', "column 'note s1,x' of line 1"),
        ("t.tsv", 'id\tnote\tsite\ns1\t"two\nlines"\tA\n', "goes on in line 3"),
        ("t.tsv", 'id\tnote\ns1\t"two\nlines"\ns2\tx\n', "goes on in line 3"),
    ],
)
def test_line_breaks_in_cells_are_refused(tmp_path, name, text, where):
    with pytest.raises(BrioError, match=rf"{name} has a .*{where}; take"):
        _table(tmp_path / name, text)


@pytest.mark.parametrize(("name", "separator"), [("t.tsv", "\t"), ("t.csv", ",")])
def test_separators_at_the_end_shift_no_column(tmp_path, name, separator):
    text = "id,site,note\ns1,A,x,\ns2,B,y, ,\ns3,C\n".replace(",", separator)
    found = _table(tmp_path / name, text)
    assert found == {"id": ["s1", "s2", "s3"], "site": list("ABC"), "note": ["x", "y", "n/a"]}
    with pytest.raises(BrioError, match=rf"{name} has more cells in line 3 than names in its"):
        _table(tmp_path / name, text.replace(f"y{separator} ", f"y{separator}z"))
    with pytest.raises(BrioError, match=rf"{name} has more cells in line 2 than names in its"):
        _table(tmp_path / name, "site,note\ns1,A,x\ns2,B,y\n".replace(",", separator))


def test_compressed_tables_are_read(tmp_path):
    with gzip.open(tmp_path / "t.tsv.gz", "wt") as stream:
        stream.write("id\tsite\ns1\tA\n")
    assert read_table(tmp_path / "t.tsv.gz").to_dict(orient="list") == {"id": ["s1"], "site": ["A"]}


def test_our_own_tables_keep_quotes(tmp_path):
    values = ['"A', '"A"', 'A"', '""', 'a "b" c', "plain"]
    write_table(tmp_path / "t.tsv", ("site", "n"), [{"site": v, "n": 1} for v in values])
    assert read_own_table(tmp_path / "t.tsv")["site"].tolist() == values
    assert read_table(tmp_path / "t.tsv")["site"].tolist() == values
