"""What a built page prints for each cohort, protocol, variant and measure."""

import re
from collections import defaultdict
from html import unescape
from html.parser import HTMLParser
from itertools import combinations

UNSEEN, SEEN = "unseen sites", "sites seen in training"
# Columns that print one and the same measure; they differ in names only.
COLUMNS = {
    "AUC": "AUC", "Test AUC": "AUC", "AUC, one seed": "AUC",
    "AUC, diagnosed seeds": "AUC, diagnosed seeds", "Whole scan": "AUC, diagnosed seeds",
    "ACC": "ACC", "ACC, one seed": "ACC", "Pooled AUC": "pooled AUC",
}  # fmt: skip
# The table of block lengths names scales; the estimated length is BRIO as it is.
LABELS = {"1 ×": "BRIO"}
NUMBER = re.compile(r"\d+\.\d+")


class Page(HTMLParser):
    """Tables with their notes, sentences of the headline, and texts of figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables, self.short, self.figures = [], [], []
        self._text, self._section, self._row = "", "", None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        words = dict(attrs)
        if tag == "section":
            self._section = words.get("class", "")
        elif tag == "table":
            self.tables.append({"heads": [], "rows": [], "notes": []})
        elif tag == "tr":
            self._row = []
        elif words.get("role") == "img":
            self.figures.append(words["aria-label"])
        if tag in ("td", "th", "p", "h3", "dd"):
            self._text, self._width = "", int(words.get("colspan", 1))

    def handle_data(self, data):
        self._text += data

    def handle_endtag(self, tag):
        text = " ".join(self._text.split())
        if tag in ("td", "th") and self._row is not None:
            self._row += [text] + [text] * (self._width - 1)
        elif tag == "tr":
            place = "rows" if self.tables[-1].get("body") else "heads"
            self.tables[-1][place].append(self._row)
        elif tag == "thead":
            self.tables[-1]["body"] = True
        elif tag == "h3":
            self._cohort = text
        elif tag == "dd" and self._section == "short":
            self.short.append(f"{self._cohort}: {text}")
        elif tag == "p" and self.tables:
            self.tables[-1]["notes"].append(text)


class Document:
    """The same of a page in Markdown, which has no headline."""

    def __init__(self, text: str) -> None:
        self.tables, self.short = [], []
        self.figures = re.findall(r"^!\[([^\]]*)\]", text, re.M)
        for block in text.split("\n\n"):
            lines = block.strip().splitlines()
            if lines and all(line.startswith("|") for line in lines):
                rows = [self._cells(line) for line in lines]
                self.tables.append({"heads": rows[:1], "rows": rows[2:], "notes": []})
            elif self.tables:
                self.tables[-1]["notes"].append(" ".join(lines))

    @staticmethod
    def _cells(line: str) -> list[str]:
        cells = [unescape(cell.strip().replace("*", "")) for cell in line.split("|")[1:-1]]
        return cells if any(cells[1:]) else cells[:1] * len(cells)


def printed_numbers(text: str) -> dict[tuple[str, str, str, str], dict[str, list[str]]]:
    """By (cohort, protocol, variant, measure) all numbers, and where each stands."""
    page = Page(text) if "<html" in text else Document(text)
    found = defaultdict(lambda: defaultdict(list))

    def note(cohort, protocol, label, measure, number, where):
        found[cohort, protocol, LABELS.get(label, label), measure][number].append(where)

    for table in page.tables:
        _read_table(table, note)
    for sentence in page.short:
        _read_headline(sentence, note)
    for alt in map(unescape, page.figures):
        # auc_by_site names the place behind the method.
        for one in re.findall(
            rf"(?:Means: |; )([^;]+?), ([^;]+), ({UNSEEN}|{SEEN}): ([\d.]+)", alt
        ):
            label, cohort, protocol, number = one
            note(cohort, protocol, label, "AUC", number.rstrip("."), "figure auc_by_site")
        if alt.startswith("Bar charts. Mean AUC"):
            for one in re.findall(
                r"(?:accuracy: |; )([^;]+?), ([^;]+): ([\d.]+) and ([\d.]+)", alt
            ):
                label, cohort, *numbers = one
                for measure, number in zip(("AUC", "ACC"), numbers):
                    note(cohort, UNSEEN, label, measure, number.rstrip("."), "figure ablations")
    return {key: dict(numbers) for key, numbers in found.items()}


def _place(text: str) -> tuple[str, str] | None:
    for protocol in (UNSEEN, SEEN):
        if text.endswith(f", {protocol}"):
            return text.removesuffix(f", {protocol}"), protocol
    return None


def _read_table(table, note):
    heads = table["heads"][-1]
    spans = table["heads"][0] if len(table["heads"]) > 1 else [""] * len(heads)
    # Where cohorts are columns their protocol stands in the notes.
    notes = " ".join(table["notes"])
    protocols = [one for one in (UNSEEN, SEEN) if f", {one}: " in notes]
    named = {_place(one) for one in re.findall(rf"([^.:;]+, (?:{UNSEEN}|{SEEN})): ", notes)}
    place = named.pop() if len(named) == 1 else None
    for row in table["rows"]:
        if len(set(row)) == 1:
            place = _place(row[0]) or place
            continue
        for head, span, cell in zip(heads, spans, row):
            own = _place(span) or (span and len(protocols) == 1 and (span, protocols[0])) or place
            number = NUMBER.match(cell)
            # What is chosen of a table's rows is another thing in every table.
            if head in COLUMNS and own and number and ", of these " not in row[0]:
                where = f"table with {', '.join(heads)}"
                where += f"; seeds: {row[heads.index('Seeds')]}" if "Seeds" in heads else ""
                note(*own, row[0], COLUMNS[head], number[0], where)


def _read_headline(sentence, note):
    cohort, _, rest = sentence.partition(": ")
    pattern = r"(?:^|; )(?:the best of \d+ [a-z ]+, )?([^;]*?),? reaches (?:an AUC of )?([\d.]+) \["
    protocol, rest = (
        (SEEN, rest[len(f"On {SEEN} ") :]) if rest.startswith("On ") else (UNSEEN, rest)
    )
    for label, number in re.findall(pattern, rest):
        note(cohort, protocol, label, "AUC", number, "headline")


def contradictions(text: str, shares: bool = False) -> list[str]:
    """One sentence for every number that the page prints in two ways.

    Rows that name different numbers of seeds are different things. With ``shares`` figures may
    print 0.68 where tables print 68.1, as they did in version 0.1.
    """
    return [
        f"{', '.join(key)}: {numbers}"
        for key, numbers in printed_numbers(text).items()
        if any(
            _comparable(numbers[one], numbers[other]) and not (shares and _same(one, other))
            for one, other in combinations(numbers, 2)
        )
    ]


def _comparable(one: list[str], other: list[str]) -> bool:
    first, second = (
        {place.partition("; seeds: ")[2] for place in places} for places in (one, other)
    )
    return bool(first & second) or "" in first | second


def _same(one: str, other: str) -> bool:
    share, percent = sorted((one, other), key=float)
    if not share.startswith("0."):
        return False
    return abs(float(percent) - 100 * float(share)) < 0.5 * 10 ** (4 - len(share)) + 0.051
