"""report.html: one file that opens without a network and believes no name that a user typed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from trials import Rank, cluster, created, run_trial

from scaleout.analysis.trial import row_of
from scaleout.plan.sweep import Trial
from scaleout.report.html import write_report
from scaleout.results.compile import compile_results
from scaleout.results.remains import remains_of
from scaleout.results.store import ROW_FILE, SweepStore

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title><script src=//evil.example/x.js></script>",
    "{{ 7*7 }}{% raw %}",
    "&lt;b&gt; & co",
]
FETCHING = {"src", "href", "xlink:href", "data", "action", "poster", "srcset", "formaction", "background", "manifest"}


class Page(HTMLParser):
    """The tags, attributes and text of a page, as a browser's parser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.styles = ""
        self._open = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.text += "\n"
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.styles += "".join(value or "" for name, value in attrs if name == "style")

    def handle_data(self, data: str) -> None:
        if self._open == "style":
            self.styles += data
        self.text += data


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))


def collected(store: SweepStore, trial: Trial, folder: str) -> None:
    row = row_of(remains_of(store, store.sweep(), trial, folder))
    store.write(row.model_dump(mode="json"), folder, ROW_FILE)


def report(run_id: str = "nightly", ranks: Any = None, failure: str | None = None, **changes: Any) -> str:
    """The page of a sweep of two trials; the second one takes `ranks` and `failure`."""
    store, sweep = created({}, cluster(2, processes_per_node=1, **changes), run_id)
    first, second = sweep.trials
    collected(store, first, run_trial(store, first))
    collected(store, second, run_trial(store, second, ranks, failure))
    return write_report(store, compile_results(store)).read_text(encoding="utf-8")


def test_the_page_fetches_nothing() -> None:
    page = Page(report())
    links = [(tag, name, value) for tag, name, value in page.attributes if name in FETCHING]
    assert [link for link in links if not link[2].startswith("#")] == []
    assert {"script", "iframe", "link", "object", "embed", "base"} & set(page.tags) == set()
    assert "@import" not in page.styles
    assert re.findall(r"url\((?!['\"]?#)", page.styles) == []
    assert [(tag, name) for tag, name, value in page.attributes if "url(" in value and "url(#" not in value] == []


def test_the_plot_is_drawn_in_the_page() -> None:
    page = Page(report())
    assert page.tags.count("svg") == 1 and "path" in page.tags


def test_there_is_no_plot_where_there_is_no_rate(tmp_path: Path) -> None:
    store, _ = created({}, cluster(2, processes_per_node=1))
    html = write_report(store, compile_results(store)).read_text()
    assert "svg" not in Page(html).tags
    assert "Missing: 2 of 2 trials have no figures" in Page(html).text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_run_id_and_a_hostile_failure_are_text(name: str) -> None:
    page = Page(report(run_id=name, failure=f"node2: {name}"))
    assert page.text.count(name) >= 3
    assert f"node2: {name}" in page.text
    assert {"script", "img", "b"} & set(page.tags) == set()
    assert page.tags.count("title") == 1
    assert not [attribute for _, attribute, _ in page.attributes if attribute.startswith("on")]


def test_the_page_has_the_figures_of_every_trial_and_how_to_repeat_it() -> None:
    page = Page(report(ranks=Rank(windows=[(0, 100, 12.5)])))
    rows = re.findall(r"ssd\s*([12])\s*([12])\s*1\s*cold\s*2\s*([\d.]+)", page.text)
    assert rows == [("1", "1", "10.000"), ("2", "2", "16.000")]
    assert "cd /r && python3 main.py # node2" in page.text
    assert "0123456789abcdef" in page.text


def test_two_workloads_stand_side_by_side() -> None:
    store, sweep = created({"workloads": ["ssd", "segmentation"], "nodes": [1]}, cluster(1, processes_per_node=1))
    for trial in sweep.trials:
        collected(store, trial, run_trial(store, trial))
    results = compile_results(store)
    page = Page(write_report(store, results).read_text(encoding="utf-8"))
    assert "Scaling of DeepLabV3+ semantic segmentation, SSD300-ResNet50 object detection on a100" in page.text
    assert re.findall(r"(ssd|segmentation)\s*1\s*1\s*1\s*cold\s*2\s*([\d.]+)", page.text) == [
        ("segmentation", "10.000"),
        ("ssd", "10.000"),
    ]
    assert page.tags.count("svg") == 1
    assert page.text.count("trials of 6 steps;") == 1
    assert "segmentation, not as published: batch per GPU 2 (method: 8)" in page.text
    assert [(row.workload, row.model) for row in results.rows] == [
        ("segmentation", "model of segmentation"),
        ("ssd", "model of ssd"),
    ]


def test_a_missing_trial_stands_at_the_top() -> None:
    text = Page(report(failure="node2: killed by SIGKILL")).text
    assert "Missing: 1 of 2 trials have no figures" in text
    assert text.index("node2: killed by SIGKILL") < text.index("images/s")


def test_a_reason_that_holds_for_many_figures_is_said_once_per_trial() -> None:
    text = Page(report(failure="node2: killed by SIGKILL")).text
    trials = text[text.index("ssd on 2 nodes", text.index("Missing:") + 200) :]
    assert trials.count("node2: killed by SIGKILL") == 1
    assert "images_per_s," in trials and "hit_ratio" in trials


def test_a_cache_state_that_is_not_proved_is_said_with_its_reason() -> None:
    text = Page(report(ranks=Rank(read_bytes=(0, 10)))).text
    assert "cold? unproven" in text
    assert "cache state unproven, since node1 fetched only 0%" in text
