"""Makes shards: all variants of a frame with their labels, then the record that says that they are there."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from training.data.files import is_leftover, make_folder, write_whole
from training.data.inflation.base import TRAIN, BaseSet, Frame, SourceFile, read_source
from training.data.inflation.labels import Content, Labels, ShardLabels, folders
from training.data.inflation.layout import Shard, image_name, variant_name
from training.data.inflation.pictures import Copies, Pictures
from training.data.inflation.place import remove_leftovers_in
from training.data.inflation.settings import Settings
from training.data.inflation.tally import Tally
from training.data.names import is_taken
from training.data.shards import SCHEMA, ShardRecord, StoredFile, content_digest, date_folders, shard_of, write_record

_WRITES_BEHIND = 2  # variants of a worker that are still being written while it makes the next


class Maker:
    """Makes one shard after the other, in worker processes that hold it from their start."""

    def __init__(
        self,
        base: BaseSet,
        out: Path,
        labels: Labels,
        settings: Settings,
        noise: float,
        shards: list[Shard],
        tally: Tally,
    ) -> None:
        self._base, self._out, self._labels, self._settings = base, out, labels, settings
        self._shards = {shard.name: shard for shard in shards}
        self._frames: list[Frame] = labels.frames(base)
        self._tally = tally
        self._augmented = _augmentation(base, settings, noise) if settings.method == "augment" else None

    def __call__(self, key: str) -> None:
        """Makes a shard `<split>/<shard>`, or leaves it where all are to stop. Raises DataError, OSError; then all stop."""
        split, name = shard_of(key)
        try:
            if split == TRAIN:
                self._inflate(self._shards[name])
            else:
                self._carry(split, name)
        except BaseException:
            self._tally.stop()
            raise

    def _inflate(self, shard: Shard) -> None:
        frame = self._frames[shard.frame]
        own = folders(self._labels, shard)
        for folder in own:
            make_folder(self._out / folder)
        labels = self._labels.begin(shard, frame)
        files: dict[str, StoredFile] = {}
        with ThreadPoolExecutor(1, "write") as writer:
            behind: deque[Future[dict[str, StoredFile]]] = deque()
            for contents in self._variants(shard, frame, labels):
                behind.append(writer.submit(self._write_variant, contents))
                if len(behind) > _WRITES_BEHIND:
                    files.update(behind.popleft().result())
            for written in behind:
                files.update(written.result())
        if self._tally.is_stopped():
            return
        rest = labels.rest()
        for path, _ in rest:
            make_folder((self._out / path).parent)
        files.update(self._write(rest))
        for folder in own:
            _keep_only(self._out / folder, {PurePosixPath(path).name for path in files})
        date_folders((self._out / folder for folder in own), files)
        write_record(self._out, ShardRecord(SCHEMA, TRAIN, shard.name, files))

    def _variants(self, shard: Shard, frame: Frame, labels: ShardLabels) -> Iterator[list[Content]]:
        """The files of one variant after the other, until all are to stop."""
        pictures = self._pictures(frame)
        for variant in range(shard.first, shard.end):
            if self._tally.is_stopped():
                return
            picture, change = pictures.variant(variant)
            image = f"{self._labels.images}/{shard.name}/{self._file_name(frame, variant)}"
            yield [(image, picture), *labels.add(variant, image, change)]

    def _pictures(self, frame: Frame) -> Pictures:
        content = read_source(self._base, frame.image)
        return self._augmented(frame, content) if self._augmented else Copies(content)

    def _file_name(self, frame: Frame, variant: int) -> str:
        suffix = PurePosixPath(frame.image.path).suffix if self._augmented is None else self._settings.suffix
        return image_name(variant_name(frame.name, variant, self._settings.factor), suffix)

    def _write_variant(self, contents: list[Content]) -> dict[str, StoredFile]:
        stored = self._write(contents)
        self._tally.add(1, sum(file.bytes for file in stored.values()))
        return stored

    def _write(self, contents: list[Content]) -> dict[str, StoredFile]:
        stored = {}
        for path, content in contents:
            write_whole(self._out / path, content)
            stored[path] = StoredFile(len(content), content_digest(content))
        return stored

    def _carry(self, split: str, name: str) -> None:
        """Takes a shard of the base set as it is: by links, else copies of the same dates."""
        record = self._base.records[split, name]
        folders_of = {(self._out / path).parent for path in record.files}
        for folder in folders_of:
            make_folder(folder)
            remove_leftovers_in(folder)
        for path, stored in record.files.items():
            source, target = (self._base.root / path).resolve(), self._out / path
            target.unlink(missing_ok=True)
            try:
                os.link(source, target)
            except OSError:
                write_whole(target, read_source(self._base, SourceFile(path, stored)))
                shutil.copystat(source, target)
        date_folders(folders_of, record.files)
        write_record(self._out, record)


def _augmentation(base: BaseSet, settings: Settings, noise: float) -> Callable[[Frame, bytes], Pictures]:
    """What makes the variants of a frame of its file."""
    from training.data.inflation.augment import Augmenter  # imports torch, and copies need none
    from training.data.inflation.augmented import Augmented

    augmenter = Augmenter(settings.seed, noise)

    def augmented(frame: Frame, content: bytes) -> Pictures:
        path = base.root / frame.image.path
        return Augmented(content, path, frame.name, settings.seed, augmenter, settings.format)

    return augmented


def _keep_only(folder: Path, names: set[str]) -> None:
    """Removes what killed runs left in a shard's folder, and pictures that are not its own."""
    for path in folder.iterdir():
        if path.name not in names and (is_taken(path.name) or is_leftover(path.name)):
            path.unlink()
