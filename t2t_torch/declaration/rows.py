"""The files that a declaration names, and their rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from t2t_torch.declaration.schema import Declaration, Rows, mistake
from t2t_torch.errors import DataError, UsageError
from t2t_torch.mode import Split
from t2t_torch.readers.bad_records import BadRecords, Record
from t2t_torch.readers.bio import FILES as BIO_FILES
from t2t_torch.readers.formats import format_of, open_records
from t2t_torch.readers.idx import labels_of


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

        Raises:
          RegistryError: a pattern is none, or of parallel files one fits more than another.
        """
        rows = self._rows(split)
        if rows.parallel:
            return [path for together in self._parallel(split) for path in together.values()]
        return [path for name in rows.paths for path in self._found(name, split)]

    def check(self) -> None:
        """Checks that all files are there, and each in one split only.

        Raises:
          DataError: some are not; all are named.
          RegistryError: the same file is in two splits.
        """
        named = {split: self.paths(split) for split in self.splits()}
        missing = [path for paths in named.values() for path in paths if not path.exists()]
        if missing:
            told = "\n  ".join(dict.fromkeys(str(path) for path in missing))
            raise DataError(
                f"{self._declaration.problem!r} ({self._path}) reads files that are not there:\n"
                f"  {told}\nPut them into the folder of raw files (--tmp_dir), or beside the "
                'declaration, or mend its "files".'
            )
        seen: dict[Path, Split] = {}
        for split, paths in named.items():
            for path in paths:
                first = seen.setdefault(path.resolve(), split)
                if first is not split:
                    raise self._in_two(path, first, split)

    def _in_two(self, path: Path, first: Split, second: Split) -> Exception:
        one, other = first.name.lower(), second.name.lower()
        return mistake(
            self._path,
            f"files.{other}",
            f"{path} is read for {one!r} too, so what is learnt would be measured on itself. Name "
            f'the files of each one by one ("{one}": ["a.csv", "b.csv"]) or by a pattern that does '
            f'not fit the other\'s, or hold out a part of the training rows: "{other}": 0.05.',
        )

    def raw_files(self) -> list[Path]:
        """All plain files, also those in the folders that are named, and labels of pictures."""
        found: list[Path] = []
        for split in self.splits():
            rows = self._files.of(split)
            for path in self.paths(split):
                found += [path] if rows.parallel else self._files_in(path)
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
        options = dict(self._declaration.options)
        if self._rows(split).parallel:
            for together in self._parallel(split):
                # The reader takes paths from the folder of the first: all are made absolute.
                files = {field: path.absolute() for field, path in together.items()}
                options["files"] = {field: str(path) for field, path in files.items()}
                first = next(iter(files.values()))
                yield "parallel", self._open(first, "parallel", options, bad)
            return
        for path in self.paths(split):
            format_name = self._format(path)
            yield format_name, self._open(path, format_name, options, bad)

    def _rows(self, split: Split) -> Rows:
        """Where the rows of a split are read; of one that is held out, in train."""
        rows = self._files.of(split)
        return self._files.train if rows.part else rows

    def _parallel(self, split: Split) -> list[Mapping[str, Path]]:
        """By field, the files that belong together; those of patterns in their order."""
        named = self._rows(split).parallel
        found = {field: self._found(name, split) for field, name in named.items()}
        counts = {field: len(paths) for field, paths in found.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{n} for {field!r} ({named[field]})" for field, n in counts.items())
            what = f"as many files for each field were expected, not {told}."
            raise mistake(self._path, f"files.{self._owner(split)}", what)
        together = zip(*found.values(), strict=True)
        return [dict(zip(found, paths, strict=True)) for paths in together]

    def _owner(self, split: Split) -> str:
        """The key in "files" that names what is read for a split."""
        return (Split.TRAIN if self._files.of(split).part else split).name.lower()

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

    def _found(self, name: str, split: Split) -> list[Path]:
        """What a path or pattern leads to; where it would be, if it is nowhere."""
        try:
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
        except (ValueError, RuntimeError, OSError) as error:  # what pathlib raises for such names
            what = f"{name!r} is no path and no pattern: {error}."
            raise mistake(self._path, f"files.{self._owner(split)}", what) from None
        return [self._folders[0] / expanded]

    def _files_in(self, path: Path) -> list[Path]:
        """The plain files that are read where a path is named."""
        if not path.exists():  # Data outlives its raw files.
            return [path]
        format_name, options = self._format(path), self._declaration.options
        if format_name == "bio":
            folder = path if path.is_dir() else path.parent
            names = options.get("files", BIO_FILES).values()
            held = (_bio_file(folder, name) for name in names)
            return [one for one in held if one is not None]
        if format_name == "idx":
            with contextlib.suppress(DataError):  # told when they are read
                return [path, labels_of(path, options.get("labels", ""))]
        if path.is_dir():
            return sorted(one for one in path.rglob("*") if one.is_file())
        return [path]


def _bio_file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)
