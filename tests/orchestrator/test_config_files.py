"""A wrong file of the configuration gets one sentence per mistake, with file and line; never a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from trials import config_folder

from scaleout.config import files
from scaleout.errors import ConfigError

CLUSTER = """\
# a comment on the first line
name: lab
nodes:
  - name: node1
    connection: c1
  - name: node2
    connection: c2
cityscapes: /mnt/cityscapes
prepared: /mnt/prepared
device: cuda
processes_per_node: 8
array:
  kind: onefs
  connection: nas
  nodes: 4
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(tmp_path))
    config_folder(tmp_path)
    (tmp_path / "clusters/lab.yaml").write_text(CLUSTER)
    return tmp_path


def complaint(folder: Path, content: str | bytes) -> str:
    path = folder / "clusters/lab.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as refused:
        files.load_cluster("lab")
    return str(refused.value).replace(str(path), "lab.yaml")


def changed(old: str, new: str) -> str:
    assert CLUSTER.count(old) == 1
    return CLUSTER.replace(old, new)


def test_the_shipped_files_are_right() -> None:
    assert {"local", "lab"} <= set(files.names("clusters"))
    assert [files.load_cluster("local").name, files.load_cluster("lab").name] == ["local", "lab"]
    assert [files.load_workload(name).name for name in files.names("workloads")] == files.names("workloads")
    assert all(files.load_preset(name).description for name in files.names("presets"))
    assert {"paper", "nightly", "quick"} <= set(files.names("presets"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "lab.yaml:1: is empty"),
        ("# nothing but a comment\n", "lab.yaml:1: is empty"),
        ("- name: lab\n", "lab.yaml:1: must be a mapping of keys"),
        ("name: lab\nnodes: [\n", "lab.yaml:3: not YAML: expected the node content, but found '<stream end>'"),
        ("name: lab\nnodes: a: b\n", "lab.yaml:2: not YAML: mapping values are not allowed here"),
        ("name: lab\n\tnodes: 1\n", "lab.yaml:2: not YAML: found character '\\t' that cannot start any token"),
        ("name: lab\nx: *y\n", "lab.yaml:2: not YAML: found undefined alias 'y'"),
        ("name: lab\n---\nname: lab\n", "lab.yaml:2: not YAML: but found another document"),
        ("name: lab\ndescription: \0\n", "lab.yaml:2: not YAML: the character #x0000 may not stand there"),
        (b"name: lab\ndescription: caf\xe9\n", "lab.yaml:2: not YAML: not UTF-8 text: invalid continuation byte"),
        ("name: lab\ndescription: 2026-13-45\n", "lab.yaml:1: not YAML: month must be in 1..12"),
    ],
)
def test_what_is_no_yaml_mapping_is_refused_in_one_sentence(folder: Path, content: str | bytes, sentence: str) -> None:
    assert complaint(folder, content) == sentence


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("device: cuda", "devise: cuda", "lab.yaml:10: unknown key 'devise'; did you mean 'device'?"),
        ("  connection: nas", "  conection: nas\n  connection: nas", "lab.yaml:14: unknown key 'array.onefs.conection'; "
         "did you mean 'connection'?"),
        ("    connection: c2", "    connection: c2\n    adress: x",
         "lab.yaml:8: unknown key 'nodes.1.adress'; did you mean 'address'?"),
        ("prepared: /mnt/prepared\n", "", "lab.yaml:1: the key 'prepared' is missing"),
        ("    connection: c2\n", "", "lab.yaml:6: the key 'nodes.1.connection' is missing"),
        ("device: cuda", "device: tpu", "lab.yaml:10: device: input should be 'cuda' or 'cpu' (found 'tpu')"),
        ("  nodes: 4", "  nodes: 0", "lab.yaml:15: array.onefs.nodes: input should be greater than 0 (found 0)"),
        ("processes_per_node: 8", "processes_per_node: .nan",
         "lab.yaml:11: processes_per_node: input should be a finite number (found nan)"),
        ("processes_per_node: 8", "processes_per_node: 8\nlease_s: .inf",
         "lab.yaml:12: lease_s: input should be a finite number (found inf)"),
        ("cityscapes: /mnt/", "cityscapes: mnt/",
         "lab.yaml:8: cityscapes: string should match pattern '^(/|~/).+' (found 'mnt/cityscapes')"),
        ("name: node2", "name: node1",
         "lab.yaml:6: nodes.1.name: the name 'node1' stands more than once; each node needs its own"),
        ("connection: c2", "connection: c1",
         "lab.yaml:7: nodes.1.connection: the connection 'c1' stands more than once; each node needs its own"),
        ("device: cuda", "device: cuda\nnode_counts:\n  - 1\n  - 3",
         "lab.yaml:13: node_counts.1: 3 is more than the cluster's 2 nodes"),
        ("device: cuda", "device: cuda\nname: lab",
         'lab.yaml:11: not YAML: found duplicate key "name" with value "lab" (original value: "lab")'),
        ("name: lab", "name: laboratory", "lab.yaml:2: name is 'laboratory' and must be the file's, 'lab'"),
    ],
)  # fmt: skip
def test_one_mistake_gets_one_sentence_with_its_line(folder: Path, old: str, new: str, sentence: str) -> None:
    assert complaint(folder, changed(old, new)) == sentence


def test_an_unknown_key_that_is_like_no_other_gets_the_list_of_keys(folder: Path) -> None:
    sentence = complaint(folder, changed("device: cuda", "zzz: 1"))
    assert sentence.startswith("lab.yaml:10: unknown key 'zzz'; known here: array, cityscapes,")
    assert "\n" not in sentence


def test_the_kind_of_array_is_one_that_we_have(folder: Path) -> None:
    sentence = complaint(folder, changed("kind: onefs", "kind: isilon"))
    assert sentence.startswith("lab.yaml:12: array: ") and "'onefs', 'command', 'none'" in sentence


def test_a_mistake_in_a_key_that_was_merged_in_is_a_sentence_too(folder: Path) -> None:
    text = changed("  - name: node1\n", "  - &first\n    name: node1\n    address: 7\n")
    text = text.replace("  - name: node2\n", "  - <<: *first\n    name: node2\n")
    lines = complaint(folder, text).splitlines()
    assert [re.sub(r"lab\.yaml:\d+: ", "", line) for line in lines] == [
        "nodes.0.address: input should be a valid string (found 7)",
        "nodes.1.address: input should be a valid string (found 7)",
    ]


def test_every_mistake_of_a_file_is_told_at_once(folder: Path) -> None:
    text = changed("device: cuda", "device: tpu").replace("  nodes: 4", "  nodes: none")
    places = [line.split(": ")[0] for line in complaint(folder, text).splitlines()]
    assert places == ["lab.yaml:10", "lab.yaml:15"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("labs", "did you mean 'lab'?"), ("zzz", "there are: lab, local"), ("../presets/quick", "there are: lab, local")],
)
def test_a_file_that_is_not_there_gets_the_nearest_name(folder: Path, name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        files.load_cluster(name)
    assert str(refused.value) == f"no cluster named {name!r} in {folder}/clusters; {hint}"


def test_a_configuration_folder_that_is_not_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"no preset named 'quick' in .*/nowhere/presets; there are: none"):
        files.load_preset("quick")


def test_a_preset_and_a_workload_are_checked_alike(folder: Path) -> None:
    preset, workload = folder / "presets/quick.yaml", folder / "workloads/ssd.yaml"
    preset.write_text("description: x\nround: 2\n")
    with pytest.raises(ConfigError, match=r"quick\.yaml:2: unknown key 'round'; did you mean 'rounds'\?"):
        files.load_preset("quick")
    workload.write_text(workload.read_text().replace("launcher: torchrun", "launcher: mpirun"))
    with pytest.raises(ConfigError, match=r"ssd\.yaml:\d+: launcher: input should be 'torchrun' or"):
        files.load_workload("ssd")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("prepare: segmentation/prepare.py", "prepare: ../prepare.py", "prepare: string should match pattern"),
        ("prepare: segmentation/prepare.py", "prepare: segmentation/prepare", "prepare: string should match pattern"),
        ("[leftImg8bit/train, gtFine/train]", "[../train]", "read_folders.0: string should match pattern"),
        ("[leftImg8bit/train, gtFine/train]", "[]", "read_folders: list should have at least 1 item"),
        ("factor: 681", "factor: 0", "inflation.factor: input should be greater than 0 (found 0)"),
        ("factor: 681", "factor: 680", "dataset_images: 2025975 is no multiple of inflation.factor, 680"),
        ("format: png", "format: gif", "inflation.format: input should be 'png' or 'jpeg' (found 'gif')"),
        (
            "  mean_mb: 2.67",
            "  mean_bm: 2.67",
            "unknown key 'inflation.mean_bm'; did you mean 'mean_mb'?",
        ),
        (
            "arguments_on_cpu: [",
            "arguments_on_gpu: [",
            "unknown key 'arguments_on_gpu'; did you mean 'arguments_on_cpu'?",
        ),
    ],
)
def test_a_workload_with_a_wrong_value_is_refused(folder: Path, old: str, new: str, sentence: str) -> None:
    path = folder / "workloads/segmentation.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        files.load_workload("segmentation")
    assert re.search(r"segmentation\.yaml:\d+: " + re.escape(sentence), str(refused.value))


def test_a_workload_that_names_no_program_for_its_data_takes_the_one_that_converts(folder: Path) -> None:
    path = folder / "workloads/ssd.yaml"
    path.write_text(re.sub(r"(?m)^(prepare|read_folders):.*\n", "", path.read_text()))
    workload = files.load_workload("ssd")
    assert (workload.prepare, workload.read_folders) == ("data/convert.py", ["train2017"])


def test_a_file_that_an_editor_keeps_beside_ours_is_none_of_ours(folder: Path) -> None:
    (folder / "presets/.#quick.yaml").symlink_to("someone@somewhere.1234")
    assert files.names("presets") == ["nightly", "paper", "quick"]
