"""A sweep over data sets that two nodes have inflated: each frame three times, both workloads."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest
from world import TWO_STEPS, World, assert_pairs_were_read, rows_of

FORM = TWO_STEPS | {"nodes": [2], "dataset_factor": 3}


def data_set(world: World, workload: str) -> Path:
    (folder,) = (world.home / "nas" / "prepared").glob(f"{workload}-*-x3")
    return folder


def test_masks_are_part_of_the_bytes_that_segmentation_needs_and_reads(finished: World) -> None:
    assert_pairs_were_read(finished, data_set(finished, "segmentation"), 12)


@pytest.mark.parametrize("workload", ["ssd", "segmentation"])
def test_every_result_names_the_data_set_that_was_read(finished: World, workload: str) -> None:
    folder = data_set(finished, workload)
    manifest_sha256 = sha256((folder / "manifest.json").read_bytes()).hexdigest()
    for row in rows_of(finished, workload):
        assert row["provenance"]["manifests_read"] == [manifest_sha256]
        data = row["provenance"]["dataset"]
        assert (data["manifest_sha256"], Path(data["path"]).name) == (manifest_sha256, folder.name)
        assert [data[key] for key in ("images", "factor", "method", "format", "seed")] == [12, 3, "augment", "png", 0]
    assert f"{workload}, data set: 12 images of " in finished.command("show").stdout
    assert (
        f"(each frame 3 times, augment, png, seed 0), manifest {manifest_sha256[:12]}"
        in (finished.latest() / "report.html").read_text()
    )


def test_both_nodes_made_their_part_of_the_data(finished: World) -> None:
    for workload in ("ssd", "segmentation"):
        (job,) = (finished.cluster.folder / "node2" / "home/scaleout/runs" / finished.latest().name).glob(
            f"inflate-{workload}-make-t1/node2/exit.json"
        )
        assert json.loads(job.read_text())["state"] == "succeeded"
        log = job.with_name("log").read_text().splitlines()
        assert any(re.match(r"6 of 6 images, [\d.,]+ images/s, [\d.,]+ MB/s", line) for line in log), log


def test_the_inflated_files_are_what_is_sampled_and_counted(finished: World) -> None:
    folders = {"ssd": ["train2017"], "segmentation": ["leftImg8bit/train", "gtFine/train"]}
    published = {"ssd": "972,825", "segmentation": "2,025,975"}
    for row in finished.results()["trials"]:
        caches = json.loads((finished.latest() / row["trial"] / "caches.json").read_text())
        read = folders[row["workload"]]
        for sampled in caches["resident"].values():
            assert {folder: sample["files"] for folder, sample in sampled["folders"].items()} == dict.fromkeys(read, 12)
        assert row["overrides"]["images"] == f"12 (method: {published[row['workload']]})"


def test_verify_finds_what_became_of_a_data_set(finished: World) -> None:
    form = ["--workload", "ssd", "--conf", json.dumps(FORM), "--full"]
    right = finished.command("data", "verify", *form)
    assert right.returncode == 0, right.stdout + right.stderr
    folder = data_set(finished, "ssd")
    image = sorted((folder / "train2017").rglob("*_v0001_*.png"))[0]
    image.write_bytes(image.read_bytes()[:-1])
    wrong = finished.command("data", "verify", *form)
    assert wrong.returncode == 1 and image.name in wrong.stdout, wrong.stdout + wrong.stderr
    assert "Traceback" not in wrong.stdout + wrong.stderr
