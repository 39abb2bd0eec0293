"""The files that a declaration names, and their rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_torch.declaration.schema import Declaration, mistake
from t2t_torch.errors import DataError, UsageError
from t2t_torch.mode import Split
from t2t_torch.readers.bad_records import BadRecords, Record
from t2t_torch.readers.bio import FILES as BIO_FILES
from t2t_torch.readers.formats import format_of, open_records


class RowFiles:
    """The files of a declaration's splits.

    A path that is not absolute is looked for in the folder of raw files, then beside the
    declaration.

    Args:
      declaration: what names them.
      path: where the declaration stands.
      tmp_dir: the folder of raw files.
    """

    def __init__(self, declaration: Declaration, path: Path, tmp_dir: Path) -> None:
        assert declaration.files is not None
        self._declaration = declaration
        self._files = declaration.files
        self._path = path
        self._folders = (tmp_dir, path.parent)

    def splits(self) -> Iterator[Split]:
        """Yields the splits that have files of their own."""
        for split in self._files.splits:
            if not self._files.of(split).part:
                yield split

    def paths(self, split: Split) -> list[Path]:
        """The files or folders of a split, there or not; of one that is held out, those of train.

        A pattern gives the files that it fits, sorted.
        """
        rows = self._files.of(split)
        if rows.part:
            return self.paths(Split.TRAIN)
        named = [*rows.paths, *rows.parallel.values()]
        return [path for name in named for path in self._found(name)]

    def check(self) -> None:
        """Checks that all files are there.

        Raises:
          DataError: some are not; all are named.
        """
        named = [path for split in self.splits() for path in self.paths(split)]
        missing = [path for path in named if not path.exists()]
        if missing:
            told = "\n  ".join(dict.fromkeys(str(path) for path in missing))
            raise DataError(
                f"{self._declaration.problem!r} ({self._path}) reads files that are not there:\n"
                f"  {told}\nPut them into the folder of raw files (--tmp_dir), or beside the "
                'declaration, or mend its "files".'
            )

    def raw_files(self) -> list[Path]:
        """All plain files, also those in the folders that are named."""
        found: list[Path] = []
        for split in self.splits():
            for path in self.paths(split):
                found += _files_in(path, self._format(path)) if path.is_dir() else [path]
        return list(dict.fromkeys(found))

    def records(self, split: Split, bad: BadRecords) -> Iterator[Record]:
        """Yields the rows of a split's files, file by file.

        Raises:
          DataError: a file cannot be read, or a row is bad and `bad` does not skip it.
          RegistryError: the options do not fit the format.
        """
        for _, one in self.opened(split, bad):
            yield from one

    def opened(self, split: Split, bad: BadRecords) -> Iterator[tuple[str, Iterator[Record]]]:
        """Yields the format and the rows of each file, or of the files that are parallel."""
        rows, options = self._files.of(split), dict(self._declaration.options)
        if rows.part:
            rows = self._files.train
        if rows.parallel:
            files = {field: str(self._found(name)[0]) for field, name in rows.parallel.items()}
            options["files"] = files
            first = Path(next(iter(files.values())))
            yield "parallel", self._open(first, "parallel", options, bad)
            return
        for path in self.paths(split):
            format_name = self._format(path)
            yield format_name, self._open(path, format_name, options, bad)

    def _open(
        self, path: Path, format_name: str, options: dict[str, object], bad: BadRecords
    ) -> Iterator[Record]:
        try:
            yield from open_records(path, format=format_name, bad=bad, options=options)
        except UsageError as error:
            raise mistake(self._path, "options", str(error)) from None

    def _format(self, path: Path) -> str:
        if self._declaration.format is not None:
            return self._declaration.format
        if path.is_dir() and _bio_file(path, "seq.in") is not None:
            return "bio"
        try:
            return format_of(path)
        except DataError as error:
            raise mistake(self._path, "format", f"is missing. {error}") from None

    def _found(self, name: str) -> list[Path]:
        """What a path or pattern leads to; where it would be, if it is nowhere."""
        expanded = Path(name).expanduser()
        for folder in self._folders:
            path = folder / expanded
            if path.exists():
                return [path]
            if any(mark in name for mark in "*?["):
                top = Path(expanded.anchor) if expanded.anchor else folder
                pattern = expanded.relative_to(expanded.anchor) if expanded.anchor else expanded
                matching = sorted(top.glob(str(pattern)))
                if matching:
                    return matching
        return [self._folders[0] / expanded]


def _files_in(folder: Path, format_name: str) -> list[Path]:
    if format_name == "bio":
        named = [_bio_file(folder, name) for name in BIO_FILES.values()]
        return [path for path in named if path is not None]
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _bio_file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)
