"""Reader of conversations with an assistant, as OpenAI's and ShareGPT's JSON has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.jsonl import raw_rows, rows_in
from t2t_torch.readers.text_file import BadRecords, Record
from t2t_torch.registry import register_reader

_TURNS = ("messages", "conversations", "conversation", "dialog", "dialogue")
_FORMS = (("role", "content"), ("from", "value"))
_ANSWERING = ("assistant", "gpt", "bot", "model", "chatgpt", "bing", "bard")

Turn = tuple[str, str]
"""Speaker and text of a turn."""


def _match_chat(head: Head) -> Match | None:
    rows, options = rows_in(head, lambda row: bool(_turns(row)))
    if not rows:
        return None
    doubt = (
        "the file holds conversations: each answer of the assistant is a text to generate from the "
        "turns before it, with line breaks between them."
    )
    return Match(1.0, options, [doubt])


@register_reader("chat", matches=_match_chat)
def read_chat(
    path: Path, bad: BadRecords, *, records: str = "", encoding: str = ""
) -> Iterator[Record]:
    """Yields {"prompt", "response"} for each answer of the assistant in a conversation.

    Turns are `{"role": "user", "content": ...}` as of OpenAI, or `{"from": "human", "value": ...}`
    as of ShareGPT, in an object on each line or in an array.  "prompt" has all turns before the
    answer, also the system's, with line breaks between them.  A record is bad if it has no turns
    with texts.

    Args:
      path: the file, compressed or not.
      bad: policy for records without turns.
      records: the key of the array if it is in an object, such as "data".
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read, or has no array.
    """
    for place, row in raw_rows(path, bad, records, encoding):
        turns = _turns(row)
        if not turns:
            bad.report(place, "no conversation: a list of objects with a role and a content")
        for number, (speaker, text) in enumerate(turns):
            if number and speaker.lower() in _ANSWERING and text.strip():
                prompt = "\n".join(before for _, before in turns[:number])
                yield Record(place, {"prompt": prompt, "response": text})


def _turns(row: Any) -> list[Turn]:
    """Returns the turns of a conversation; none if it has another form."""
    held = row if isinstance(row, list) else None
    if isinstance(row, Mapping):
        held = next((row[key] for key in _TURNS if isinstance(row.get(key), list)), None)
    for speaker, text in _FORMS:
        turns = [
            (one[speaker], one[text])
            for one in held or ()
            if isinstance(one, Mapping)
            and isinstance(one.get(speaker), str)
            and isinstance(one.get(text), str)
        ]
        if turns and len(turns) == len(held or ()):
            return turns
    return []
