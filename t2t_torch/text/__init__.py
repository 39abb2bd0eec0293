"""Text encoders: text to ids and back."""
