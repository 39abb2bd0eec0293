"""Hostile pickles, archives, and files of JSON and YAML."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from hostile import add


def _lazy(content: Callable[[], bytes | str]) -> Callable[[Path], bytes]:
    """Returns a maker of a content, which may be large."""

    def write(path: Path) -> bytes:
        made = content()
        return made.encode() if isinstance(made, str) else made

    return write


# Pickles of torch.save.


def saved(pickled: bytes, members: Mapping[str, bytes] = {}) -> bytes:
    """Returns a file as torch.save writes it, with a given pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, content in members.items():
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


def old(pickled: bytes, keys: bytes = b"\x80\x02].", rest: bytes = b"") -> bytes:
    """Returns a file of torch before 1.6, with a given pickle."""
    header = [pickle.dumps(one, 2) for one in (0x1950A86A20F9469CFC6C, 1001, {})]
    return b"".join(header) + pickled + keys + rest


def doubled(inner: bytes, times: int) -> bytes:
    """Returns opcodes of a tuple of two equal tuples, and so on: 2**times parts."""
    text = inner
    for number in range(times):
        place = struct.pack("<I", number + 100)
        text += b"r" + place + b"j" + place + b"\x86"
    return text


def storage(key: bytes, count: int, kind: bytes = b"FloatStorage") -> bytes:
    """Returns opcodes of a reference to a storage."""
    text = b"(X\x07\x00\x00\x00storagectorch\n" + kind + b"\nX"
    text += struct.pack("<I", len(key)) + key + b"X\x03\x00\x00\x00cpu"
    return text + b"\x8a\x08" + struct.pack("<q", count) + b"tQ"


def tensor(key: bytes, count: int, shape: int, stride: int = 1, offset: int = 0) -> bytes:
    """Returns opcodes of a tensor of one dimension."""
    long = b"\x8a\x08"
    text = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(key, count)
    text += long + struct.pack("<q", offset) + long + struct.pack("<q", shape) + b"\x85"
    return text + long + struct.pack("<q", stride) + b"\x85\x89ccollections\nOrderedDict\n)RtR"


def listed(parts: list[bytes]) -> bytes:
    return b"\x80\x02](" + b"".join(parts) + b"e."


_NEST = doubled(b")", 60)
_SET = b"c__builtin__\nset\n"
_BIG = (1 << 61) - 1  # multiples of it have one hash


def _key(text: bytes) -> bytes:
    return b"\x80\x02}" + text + b"Ns."


def _longs() -> bytes:
    return b"".join(pickle.dumps(n * _BIG, 2)[2:-1] for n in range(1, 60_000))


PICKLES: dict[str, Callable[[], bytes]] = {
    "tuples_in_a_set": lambda: b"\x80\x02" + _SET + b"](" + _NEST + b"e\x85R.",
    "tuples_in_a_frozenset": lambda: b"\x80\x02cbuiltins\nfrozenset\n](" + _NEST + b"e\x85R.",
    "tuples_in_a_set_of_protocol_4": lambda: b"\x80\x04\x8f(" + _NEST + b"\x90.",
    "tuples_in_a_frozenset_of_protocol_4": lambda: b"\x80\x04(" + _NEST + b"\x91.",
    "tuples_as_a_key": lambda: _key(_NEST),
    "tuples_as_keys": lambda: b"\x80\x02}(" + _NEST + b"Nu.",
    "tuples_in_a_dict": lambda: b"\x80\x02(" + _NEST + b"Nd.",
    "tuples_in_an_ordered_dict": lambda: (
        b"\x80\x02ccollections\nOrderedDict\n](" + _NEST + b"N\x86e\x85R."
    ),
    "tuples_in_a_record": lambda: b"\x80\x02cargparse\nNamespace\n)\x81}(" + _NEST + b"Nub.",
    "tuples_as_a_storage": lambda: (
        b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + _NEST + b"NK\x01tQ."
    ),
    "tuples_as_a_shape": lambda: (
        b"\x80\x02ctorch._utils\n_rebuild_tensor\n("
        + storage(b"0", 0)
        + b"K\x00"
        + _NEST
        + _NEST
        + b"tR."
    ),
    "frozensets_in_frozensets": lambda: b"\x80\x04" + b"(" * 40 + b"N" + b"\x91" * 40 + b".",
    "one_hash": lambda: b"\x80\x02}(" + _longs().replace(b"\x8a", b"N\x8a")[1:] + b"Nu.",
    "one_hash_in_a_set": lambda: b"\x80\x02" + _SET + b"](" + _longs() + b"e\x85R.",
    "nested_lists": lambda: b"\x80\x02" + b"](" * 200_000 + b"e" * 200_000 + b".",
    "nested_tuples": lambda: b"\x80\x02)" + b"\x85" * 200_000 + b".",
    "nested_dicts": lambda: (
        b"\x80\x02" + b"}X\x01\x00\x00\x00a" * 200_000 + b"N" + b"s" * 200_000 + b"."
    ),
    "doubled_lists": lambda: b"\x80\x02" + doubled(b"]", 40) + b".",
    "a_list_in_itself": lambda: b"\x80\x02]q\x00h\x00a.",
    "many_lists": lambda: b"\x80\x02](" + b"]" * 20_000_000 + b"e.",
    "many_dicts": lambda: b"\x80\x02](" + b"}" * 20_000_000 + b"e.",
    "many_tuples": lambda: b"\x80\x02](" + b"N\x85" * 10_000_000 + b"e.",
    "many_ordered_dicts": lambda: (
        b"\x80\x02](ccollections\nOrderedDict\nq\x00)R" + b"h\x00)R" * 5_000_000 + b"e."
    ),
    "many_records": lambda: (
        b"\x80\x02](cargparse\nNamespace\nq\x00)\x81" + b"h\x00)\x81" * 5_000_000 + b"e."
    ),
    "many_classes": lambda: (
        b"\x80\x02](" + b"".join(b"cfairseq.a\nB%d\n" % n for n in range(300_000)) + b"e."
    ),
    "many_marks": lambda: b"\x80\x02" + b"(" * 20_000_000 + b".",
    "many_copies": lambda: b"\x80\x02N" + b"2" * 20_000_000 + b".",
    "a_high_place": lambda: b"\x80\x02Nr\xff\xff\xff\xff.",
    "a_high_place_of_text": lambda: b"\x80\x02Np99999999999999999999\n.",
    "a_long_number": lambda: b"\x80\x02L" + b"9" * 1_000_000 + b"L\n.",
    "a_long_line": lambda: b"\x80\x02I" + b"9" * 60_000_000,
    "a_long_text": lambda: b"\x80\x02X\xff\xff\xff\xffabc.",
    "a_long_text_of_protocol_4": lambda: b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"abc.",
    "long_bytes": lambda: b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"abc.",
    "a_long_array": lambda: b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b"abc.",
    "a_long_frame": lambda: b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    "a_buffer": lambda: b"\x80\x05\x97.",
    "an_extension": lambda: b"\x80\x02\x82\x01.",
    "nothing_to_take": lambda: b"\x80\x02" + b"0" * 100 + b".",
    "no_end": lambda: b"\x80\x02](" + b"N" * 100,
    "an_unknown_opcode": lambda: b"\x80\x02\xfe.",
    "a_class_that_is_changed": lambda: (
        b"\x80\x02ccollections\nOrderedDict\nN}X\x08\x00\x00\x00__init__Ns\x86b0cos\nsystem\n."
    ),
    "an_import_of_an_import": lambda: b"\x80\x02cbuiltins\n__import__\nX\x02\x00\x00\x00os\x85R.",
    "a_name_with_dots": lambda: (
        b"\x80\x04\x8c\x08fairseq.\x8c\x1f__class__.__base__.__subclasses__\x93."
    ),
}
_READ = "a_high_place a_high_place_of_text a_class_that_is_changed a_long_frame".split()
for _name, _content in PICKLES.items():
    _is_read = _name in _READ
    _quick = _name in ("tuples_in_a_set", "one_hash", "many_lists", "a_long_array")
    add(
        "torch_checkpoint",
        f"{_name}.pt",
        _lazy(lambda content=_content: saved(content())),
        is_read=_is_read,
        is_quick=_quick,
    )
    if not _name.startswith("many_"):
        add(
            "torch_checkpoint",
            f"old_{_name}.pt",
            _lazy(lambda content=_content: old(content())),
            is_read=_is_read,
        )

# Storages: one member of an archive, or one claim, for many.

_ONES = [b"%d" % n for n in range(1000)]
_20 = 20 << 20
STORAGES: dict[str, Callable[[], bytes]] = {
    "old_claims": lambda: old(
        listed([tensor(one, 5 << 20, 5 << 20) for one in _ONES]), rest=bytes(_20)
    ),
    "old_claims_of_nothing": lambda: old(
        listed([storage(one, 5 << 20) for one in _ONES]), rest=bytes(_20)
    ),
    "old_twice": lambda: old(
        listed([tensor(b"0", 4, 4)]),
        b"\x80\x02](X\x01\x00\x00\x000X\x01\x00\x00\x000e.",
        (struct.pack("<Q", 4) + bytes(16)) * 2,
    ),
    "old_missing": lambda: old(listed([tensor(b"0", 4, 4)])),
    "old_other_count": lambda: old(
        listed([tensor(b"0", 4, 4)]),
        b"\x80\x02](X\x01\x00\x00\x000e.",
        struct.pack("<Q", 1 << 60) + bytes(16),
    ),
    "many_tensors": lambda: saved(
        listed([tensor(b"0", 5 << 20, 5 << 20)] * 1000), {"data/0": bytes(_20)}
    ),
    "many_small_tensors": lambda: saved(
        listed([tensor(b"0", 1, 1)] * 200_000), {"data/0": bytes(4)}
    ),
    "too_many_numbers": lambda: saved(listed([tensor(b"0", 4, 1 << 40)]), {"data/0": bytes(16)}),
    "repeated_numbers": lambda: saved(listed([tensor(b"0", 4, 1 << 40, 0)]), {"data/0": bytes(16)}),
    "outside": lambda: saved(listed([tensor(b"0", 4, 4, offset=1 << 40)]), {"data/0": bytes(16)}),
    "before": lambda: saved(listed([tensor(b"0", 4, 4, offset=-1)]), {"data/0": bytes(16)}),
    "claimed": lambda: saved(listed([tensor(b"0", 1 << 50, 4)]), {"data/0": bytes(16)}),
    "negative": lambda: saved(listed([tensor(b"0", -4, 4)]), {"data/0": bytes(16)}),
    "absent": lambda: saved(listed([tensor(b"1", 4, 4)]), {"data/0": bytes(16)}),
}
for _name, _content in STORAGES.items():
    _quick = _name in ("old_claims", "many_tensors")
    add("torch_checkpoint", f"storage_{_name}.pt", _lazy(_content), is_quick=_quick)


# Archives.


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def overlapping(times: int) -> bytes:
    """Returns a zip file whose members all are one: the index names its place many times."""
    content = zipped({"0": bytes(10 << 20)})
    begin = content.rindex(b"PK\x01\x02")
    entry, end = content[begin : content.rindex(b"PK\x05\x06")], content[-22:]
    entries = b"".join(entry[:46] + b"%d" % (n % 10) + entry[47:] for n in range(times))
    return (
        content[:begin]
        + entries
        + end[:8]
        + struct.pack("<HHII", times, times, len(entries), begin)
        + end[20:]
    )


def tarred(*members: tuple[str, bytes, bytes, str]) -> bytes:
    """Returns a tar archive of (name, content, kind, target of a link)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content, kind, target in members:
            one = tarfile.TarInfo(name)
            one.size, one.type, one.linkname = len(content), kind, target
            archive.addfile(one, io.BytesIO(content))
    return file.getvalue()


def _file(name: str, content: bytes = b"a\n") -> tuple[str, bytes, bytes, str]:
    return name, content, tarfile.REGTYPE, ""


_SPARSE = tarfile.TarInfo("a")
_SPARSE.size = 1 << 50
ARCHIVES: dict[str, Callable[[], bytes]] = {
    "bomb.zip": lambda: zipped({f"{n}.txt": bytes(200 << 20) for n in range(2)}),
    "overlapping.zip": lambda: overlapping(500),
    "many.zip": lambda: zipped({f"{n}": b"" for n in range(100)}).replace(
        b"\x64\x00\x64\x00", b"\xff\xff\xff\xff"
    ),
    "outside.zip": lambda: zipped({"../../evil": b"a"}),
    "absolute.zip": lambda: zipped({"/tmp/t2t_torch_evil": b"a"}),
    "windows.zip": lambda: zipped({"..\\..\\evil": b"a"}),
    "html.zip": lambda: b"<html>404</html>",
    "outside.tar": lambda: tarred(_file("../../evil")),
    "absolute.tar": lambda: tarred(_file("/tmp/t2t_torch_evil")),
    "link.tar": lambda: tarred(("a", b"", tarfile.SYMTYPE, "/etc"), _file("a/evil")),
    "hard_link.tar": lambda: tarred(("a", b"", tarfile.LNKTYPE, "/etc/passwd")),
    "link_up.tar": lambda: tarred(("a", b"", tarfile.SYMTYPE, "../../..")),
    "pipe.tar": lambda: tarred(("a", b"", tarfile.FIFOTYPE, "")),
    "device.tar": lambda: tarred(("a", b"", tarfile.CHRTYPE, "")),
    "claim.tar": lambda: _SPARSE.tobuf() + bytes(1024),
    "bomb.tar.gz": lambda: gzip.compress(tarred(_file("a", bytes(400 << 20)))),
    "cut.tar.gz": lambda: gzip.compress(tarred(_file("a", bytes(1 << 20))))[:-20],
    "bomb.gz": lambda: gzip.compress(bytes(400 << 20)),
}
for _name, _content in ARCHIVES.items():
    add(
        "archive", _name, _lazy(_content), is_read=_name == "many.zip", is_quick=_name == "link.tar"
    )

# JSON and YAML.

JSONS: dict[str, Callable[[], bytes]] = {
    "nested": lambda: b"[" * 1_000_000,
    "nested_objects": lambda: b'{"a":' * 500_000,
    "many_lists": lambda: b"[" + b"[]," * 5_000_000 + b"[]]",
    "many_objects": lambda: b"[" + b"{}," * 5_000_000 + b"{}]",
    "digits": lambda: b"[" + b"9" * 10_000_000 + b"]",
    "strings": lambda: b"[" + b'"a",' * 30_000_000 + b'""]',
    "not_utf8": lambda: b'["\xff"]',
    "nan": lambda: b"[NaN, 1e999]",
}
for _name, _content in JSONS.items():
    add("json", f"{_name}.json", _lazy(_content), is_quick=_name == "many_lists")

_ALIASES = "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12)
)
_MERGES = "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" if n else "a0: &a0 {b: 1}\n"
    for n in range(12)
)
YAMLS: dict[str, Callable[[], str]] = {
    "aliases": lambda: _ALIASES,
    "merges": lambda: _MERGES,
    "itself": lambda: "a: &a [*a]\n",
    "nested": lambda: "[" * 100_000,
    "nested_mappings": lambda: "{a: " * 10_000,
    "indented": lambda: "".join(f"{' ' * n}a:\n" for n in range(900)),
    "digits": lambda: f"a: {'9' * 100_000}\n",
    "many": lambda: "a: [" + "b, " * 1_000_000 + "]",
    "object": lambda: "!!python/object/apply:os.system ['true']\n",
    "module": lambda: "a: !!python/name:os.system\n",
    "key": lambda: "? [a, b]\n: 1\n",
    "text": lambda: "x" * 100_000,
}
for _name, _text in YAMLS.items():
    add("yaml", f"{_name}.yaml", _lazy(_text), is_quick=_name in ("aliases", "merges"))


def _many_lines() -> bytes:
    return b"".join(b"%x 1\n" % n for n in range(10_000_000))


add("lines", "many.txt", _lazy(_many_lines))
add("lines", "many.txt.gz", _lazy(lambda: gzip.compress(_many_lines(), 1)))
add("lines", "one.txt.gz", _lazy(lambda: gzip.compress(bytes(400 << 20), 1)), is_quick=True)
add("lines", "not_utf8.txt", b"a\n\xff\n")
add("subwords", "damaged.subwords", b"\x0a\xff\xff\xff\xff\x0f")
add("artifact", "no.json", json.dumps({"format_version": 4}).encode())
