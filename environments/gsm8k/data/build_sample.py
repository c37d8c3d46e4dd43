"""Write `sample.jsonl`: made problems in the form of GSM8K's records. Run it as a module."""

from __future__ import annotations

from pathlib import Path

from environments.gsm8k.problems import sample

SAMPLE = Path(__file__).with_name("sample.jsonl")

if __name__ == "__main__":
    SAMPLE.write_text(sample(), "utf-8")
