"""Files read ahead."""

import pytest

from training.common.errors import UserError
from training.common.reading import FileReader, contents, read_file


@pytest.mark.parametrize("count", [3, 7, 40, 90])
def test_contents_come_in_the_order_asked_for(tmp_path, count):
    paths = [tmp_path / str(index) for index in range(count)]
    for index, path in enumerate(paths):
        path.write_bytes(bytes([index]) * (1 + 1000 * index))
    reader = FileReader(at_once=7)
    reads = reader.start(paths)
    assert len(reads) >= min(count, 7)  # at once
    for path, content in zip(paths, contents(reads), strict=True):
        assert content.tobytes() == path.read_bytes()
    reader.close()


@pytest.mark.parametrize(
    ("name", "sentence"), [("none.png", "cannot read .*none.png: No such file"), ("empty.png", "empty.png is empty")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, sentence):
    (tmp_path / "empty.png").touch()
    with pytest.raises(UserError, match=sentence):
        read_file(tmp_path / name)
    (tmp_path / "one.png").write_bytes(b"1")
    reader = FileReader(1)
    with pytest.raises(UserError, match=sentence):
        contents(reader.start([tmp_path / "one.png", tmp_path / name]))
    reader.close()
