"""Text encoders, text to ids and back; `subword.py` trains subword vocabularies."""
