"""The demo's report in a real headless browser: figures in the DOM, no errors, fits a phone.

Needs chromium (scripts/set_up_browser.py installs it); without one the skip says so.
"""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from demo_outcome import a_timeline, an_outcome

from tidelog.apps.demo.report.page import page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S = 120
WIDTHS = {"wide": 1440, "desk": 1280, "tablet": 768, "phone": 420, "small": 380}

PROBE = """
<script>
window.errors = [];
addEventListener("error", event => errors.push(event.message || event.target.src), true);
addEventListener("load", () => {
  const shown = e => e.getClientRects().length > 0;
  const box = e => e.getBoundingClientRect();
  const svgs = [...document.querySelectorAll("svg.tl")].filter(shown);
  const texts = svgs.flatMap(svg => [...svg.querySelectorAll("text")].filter(t => t.textContent));
  const outside = t => box(t).left < box(t.ownerSVGElement).left - 1
    || box(t).right > box(t.ownerSVGElement).right + 1;
  const size = t => parseFloat(getComputedStyle(t).fontSize) * box(t.ownerSVGElement).width
    / t.ownerSVGElement.viewBox.baseVal.width;
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
    || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
  const overprinted = svgs.flatMap(svg => {
    const own = [...svg.querySelectorAll("text")].filter(t => t.textContent);
    return own.flatMap((one, n) => own.slice(n + 1).filter(two => !apart(box(one), box(two)))
      .map(two => one.textContent + " | " + two.textContent));
  });
  const told = {
    errors,
    overprinted,
    width: innerWidth,
    lines: svgs.map(svg => [...svg.querySelectorAll("polyline")].filter(shown).length),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    cutOff: texts.filter(outside).map(t => t.textContent),
    tiny: texts.filter(t => size(t) < 10).map(t => t.textContent),
    texts: Object.fromEntries(
      [...document.querySelectorAll("[id]")].map(e => [e.id, e.textContent])),
  };
  const out = parent.document.createElement("pre");
  out.textContent = JSON.stringify(told);
  parent.document.body.append(out);
});
</script>
"""


def browser() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium in PATH: python scripts/set_up_browser.py installs it")
    return found


def looked_at(text: str, width: int, folder: Path) -> dict[str, Any]:
    """Return the contents of a page in a browser of this width.

    The page is in a frame, because a browser window can't be as narrow as a phone.
    """
    inner = escape(text.replace("<style>", PROBE + "<style>", 1))
    frame = f'<iframe width="{width}" height="900" style="border:0" srcdoc="{inner}"></iframe>'
    outer = folder / "frame.html"
    outer.write_text(f"<!DOCTYPE html><meta charset=utf-8><body style=margin:0>{frame}</body>")
    words = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,1000",
        "--dump-dom",
        outer.as_uri(),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=True)
    [told] = re.findall(r"<pre>(\{.*?\})</pre>", done.stdout, re.DOTALL)
    found: dict[str, Any] = json.loads(unescape(told))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("form", WIDTHS)
def test_a_browser_shows_the_report(form: str, tmp_path: Path) -> None:
    found = looked_at(page(an_outcome(), a_timeline(), "tidelog demo"), WIDTHS[form], tmp_path)
    assert found["width"] == WIDTHS[form]
    assert found["errors"] == []
    assert len(found["lines"]) == 2
    assert min(found["lines"]) >= 8
    assert "log end − high watermark, in records (√ scale)" in found["texts"]["near0"]
    assert found["overflow"] <= 0
    assert found["cutOff"] == []
    assert found["tiny"] == []
    assert found["overprinted"] == []
    texts = found["texts"]
    assert "4,000 acknowledged: 0 lost" in texts["verdict"]
    assert "123 ms" in texts["figures"]
    assert "epoch 1: broker 2 leads" in texts["near0"]
    assert "broker 1 leads in epoch 0" in texts["replicas"]
    assert "LEO 850" in texts["replicas"]
    for name in ("checks", "epochs", "audit", "batches"):
        assert texts[name].strip(), name


@pytest.mark.slow
def test_browser_reports_errors_in_a_broken_page(tmp_path: Path) -> None:
    text = page(an_outcome(), a_timeline(), "tidelog demo")
    broken = text.replace(
        "</main>", '<script>nowhere()</script><img src="x.png"><div style="width:2000px">wide', 1
    )
    found = looked_at(broken, 1280, tmp_path)
    assert any("nowhere" in error for error in found["errors"])
    assert any("x.png" in error for error in found["errors"])
    assert found["overflow"] > 0
