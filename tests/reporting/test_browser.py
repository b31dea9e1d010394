"""The overview page in headless Chromium: no network, no errors, and what its script does."""

import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

from tests.reporting.standins import METHODS, SITES
from tests.reporting.test_overview import SHOWN, make_page

NAMES = ("chromium", "chromium-browser", "google-chrome")
BINARY = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BINARY is None, reason="needs chromium: apt-get install chromium"),
]
WIDE, NARROW = (1280, 900), (390, 844)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--hide-scrollbars", "--virtual-time-budget=8000",
    # Every name resolves to nothing, so whatever needs the network fails and says so.
    "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
    "--allow-file-access-from-files",
)  # fmt: skip
# The page allows no script but its own, so a frame around it looks at it from outside.
PROBE = """<!doctype html><body style="margin:0"><iframe id="page" src="{url}" {sandbox}
 style="border:0;width:{width}px;height:{height}px"></iframe><script>
document.getElementById("page").onload = (event) => {{
  const view = event.target.contentWindow, page = view.document, root = page.documentElement;
  const answer = page.querySelector(".card, table").getBoundingClientRect();
  page.querySelectorAll("details").forEach((one) => {{ one.open = true; }});
  const all = (what) => [...page.querySelectorAll(what)];
  const texts = (what) => all(what).filter((one) => one.offsetParent).map((one) => one.innerText);
  const wide = (one) => !one.parentElement.closest(".scroll, .paper, pre") &&
    one.getBoundingClientRect().right > view.innerWidth + 1;
  const found = {{
    title: page.title,
    tables: [...page.querySelectorAll("table")].map((one) => one.rows.length),
    images: [...page.images].map((one) => one.complete && one.naturalWidth > 0),
    figures: all(".paper svg").map((one) => one.getBoundingClientRect().height > 100),
    answer: [answer.top, answer.bottom],
    ground: view.getComputedStyle(page.body).backgroundColor,
    acted: (() => {{ {act} }})(),
    overflow: root.scrollWidth - view.innerWidth,
    sticking: [...page.body.querySelectorAll("*")].filter(wide)
      .map((one) => one.outerHTML.slice(0, 80)),
    requests: view.performance.getEntriesByType("resource").map((one) => one.name.slice(0, 60)),
    smallest: Math.min(...[...page.querySelectorAll("td, p, figcaption")].map(
      (one) => parseFloat(view.getComputedStyle(one).fontSize))),
  }};
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
}};</script></body>
"""


def chromium(folder, url, *options, size=WIDE):
    command = [BINARY, *QUIET, f"--user-data-dir={folder / 'profile'}",
               f"--window-size={size[0]},{size[1]}", *options, url]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def console(done):
    """What the page said to the console; Chromium's own remarks do not count."""
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def look(folder, page, size, act="", sandbox="", options=()):
    """What a page shows, after ``act`` and with what that returns."""
    probe = folder / "probe.html"
    words = {"url": page.as_uri(), "width": size[0], "height": size[1]}
    probe.write_text(PROBE.format(**words, act=act, sandbox=sandbox))
    done = chromium(folder, probe.as_uri(), "--dump-dom", *options, size=(1400, 1000))
    assert done.returncode == 0, done.stderr[-2000:]
    text = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.S)
    assert text, done.stdout[-500:] + done.stderr[-500:]
    return json.loads(text[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")), done


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    make_page(root, SITES, "Demo cohort (synthetic)")
    return root / "index.html"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_page_opens_complete_and_fits(page, tmp_path, size):
    found, done = look(tmp_path, page, size)
    assert found["title"].startswith("BRIO")
    assert len(found["tables"]) == SHOWN + 1 and min(found["tables"]) >= 2
    assert found["images"] == [] and found["figures"] == [True, True]
    assert found["answer"][0] < 500, "the answer begins in the first window"
    assert found["requests"] == [] or all(name.startswith("data:") for name in found["requests"])
    assert found["overflow"] <= 0 and found["sticking"] == []
    assert found["smallest"] >= 11
    assert console(done) == []


ACTIONS = """
const table = page.querySelector("#table-loso table"), found = {};
const first = () => texts("#table-loso tbody tr:not(.group) th")
found.before = first();
const head = [...table.tHead.rows[1].cells].find((one) => one.textContent === "AUC");
const button = head.querySelector("[role=button]");
button.click();
found.highest = first(); found.groups = texts("#table-loso tr.group").length;
found.sort = head.getAttribute("aria-sort");
button.dispatchEvent(new view.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
found.lowest = first();
button.click();
found.after = first();
const field = page.querySelector("#table-settings-others input");
field.value = "density"; field.dispatchEvent(new view.Event("input"));
found.filtered = texts("#table-settings-others tbody tr:not(.group) th");
const mark = page.querySelector("#figure-sites svg [data-tip]");
mark.dispatchEvent(new view.PointerEvent("pointerover", { bubbles: true }));
found.tip = page.querySelector(".tip").textContent;
found.same = all("#figure-sites svg .same").map((one) => one.dataset.tip.split(": ")[0]);
page.dispatchEvent(new view.KeyboardEvent("keydown", { key: "Escape" }));
found.gone = page.querySelector(".tip").hidden;
const protocol = page.querySelector("select[name=protocol]");
protocol.value = "id"; protocol.dispatchEvent(new view.Event("change"));
found.chosen = all("[id^=table-]").filter((one) => one.hidden).map((one) => one.id);
protocol.value = ""; protocol.dispatchEvent(new view.Event("change"));
view.scrollTo(0, page.querySelector("#reproduce").getBoundingClientRect().top);
view.dispatchEvent(new view.Event("scroll"));
found.current = texts("nav [aria-current]");
const reached = all("a, button, summary, select, input, [tabindex]");
found.unreached = reached.filter((one) => one.tabIndex < 0).length;
found.copies = texts("button").filter((text) => text === "Copy").length;
return found;
"""


def test_page_can_be_asked(page, tmp_path):
    found, done = look(tmp_path, page, WIDE, ACTIONS)
    assert console(done) == []
    acted = found["acted"]
    rows = pd.read_csv(page.parent / "loso.csv").sort_values("auc_mean")
    assert acted["highest"] == rows["label"].tolist()[::-1] and acted["sort"] == "descending"
    assert acted["groups"] == 0 and acted["lowest"] == rows["label"].tolist()
    assert acted["after"] == acted["before"] == ["GCN", "BRIO", "Linear (correlation)"]
    assert acted["filtered"] and all("density" in text for text in acted["filtered"])
    site = acted["tip"].split(": ")[0]
    assert re.fullmatch(r"\w+: 14 subjects, AUC [\d.]+ \[[\d.]+, [\d.]+\]", acted["tip"])
    assert set(acted["same"]) == {site} and len(acted["same"]) == len(rows) and acted["gone"]
    assert "table-loso" in acted["chosen"] and "table-id" not in acted["chosen"]
    assert acted["current"] == ["This run, versions, files"]
    assert acted["unreached"] == 0 and acted["copies"] == SHOWN + 1 + 2


def test_page_is_whole_without_its_script(page, tmp_path):
    act = "return [texts('.choice').length, all('svg title').length, all('td[title]').length];"
    found, _ = look(tmp_path, page, WIDE, act, sandbox='sandbox="allow-same-origin"')
    assert len(found["tables"]) == SHOWN + 1 and found["figures"] == [True, True]
    no_choice, words, cells = found["acted"]
    assert no_choice == 0 and words > 0 and cells == len(SITES) * len(METHODS)


def test_page_is_dark_where_the_reader_wants_it(page, tmp_path):
    grounds = [
        look(tmp_path, page, WIDE, options=(f"--blink-settings=preferredColorScheme={scheme}",))[0]
        for scheme in (0, 1)
    ]
    dark, light = (sum(map(int, re.findall(r"\d+", one["ground"]))) for one in grounds)
    assert dark < 150 < 700 < light


def test_errors_would_be_seen(tmp_path):
    """The check above is worth something: a page that breaks its own rules is caught."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
        "style-src 'unsafe-inline'\">"
        "<body><table><tr><td>x<tr><td>y</table><img src='http://example.org/a.png'>"
        "<p style='width:3000px'>wide</p>"
    )
    found, done = look(tmp_path, bad, NARROW)
    assert console(done) and found["images"] == [False] and found["overflow"] > 0
    assert any("wide" in text for text in found["sticking"])


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_screenshots_are_not_empty(page, tmp_path, size):
    image = pytest.importorskip("PIL.Image")
    shot = tmp_path / "shot.png"
    chromium(tmp_path, page.as_uri(), f"--screenshot={shot}", size=size)
    with image.open(shot) as picture:
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
    most = max(count for count, _ in colours) / sum(count for count, _ in colours)
    assert len(colours) > 50 and most < 0.98
