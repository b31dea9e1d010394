"""The overview page in headless Chromium: no network, no errors, wide and narrow windows."""

import json
import re
import shutil
import subprocess

import pytest

from tests.reporting.standins import SITES
from tests.reporting.test_overview import TABLES, make_page

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
# The page allows no scripts, so a frame around it looks at it from outside.
PROBE = """<!doctype html><body style="margin:0"><iframe id="page" src="{url}"
 style="border:0;width:{width}px;height:{height}px"></iframe><script>
document.getElementById("page").onload = (event) => {{
  const view = event.target.contentWindow, page = view.document, root = page.documentElement;
  page.querySelectorAll("details").forEach((one) => {{ one.open = true; }});
  const wide = (one) => !one.parentElement.closest(".scroll, .paper, pre") &&
    one.getBoundingClientRect().right > view.innerWidth + 1;
  const found = {{
    title: page.title,
    tables: [...page.querySelectorAll("table")].map((one) => one.rows.length),
    images: [...page.images].map((one) => one.complete && one.naturalWidth > 0),
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


def look(folder, page, size):
    probe = folder / "probe.html"
    probe.write_text(PROBE.format(url=page.as_uri(), width=size[0], height=size[1]))
    done = chromium(folder, probe.as_uri(), "--dump-dom", size=(1400, 1000))
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
    assert len(found["tables"]) == TABLES and min(found["tables"]) >= 2
    assert found["images"] == [True, True]
    assert found["requests"] == [] or all(name.startswith("data:") for name in found["requests"])
    assert found["overflow"] <= 0 and found["sticking"] == []
    assert found["smallest"] >= 11
    assert console(done) == []


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
