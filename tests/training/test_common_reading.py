"""Files read ahead."""

import pytest

from training.common.errors import UserError
from training.common.reading import FileReader, read_file


def test_contents_come_in_the_order_asked_for(tmp_path):
    paths = [tmp_path / str(index) for index in range(40)]
    for index, path in enumerate(paths):
        path.write_bytes(bytes([index]) * (1 + 1000 * index))
    reader = FileReader(at_once=7)
    for path, pending in zip(paths, reader.start(paths), strict=True):
        assert pending.result().tobytes() == path.read_bytes()
    reader.close()


@pytest.mark.parametrize(
    ("name", "sentence"), [("none.png", "cannot read .*none.png: No such file"), ("empty.png", "empty.png is empty")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, sentence):
    (tmp_path / "empty.png").touch()
    with pytest.raises(UserError, match=sentence):
        read_file(tmp_path / name)
    (pending,) = FileReader(1).start([tmp_path / name])
    with pytest.raises(UserError, match=sentence):
        pending.result()
