"""The small tokenizer: byte-level BPE with the special tokens and the turn format of Qwen 3.

It is trained on this project's own transcripts (`corpus.txt`), so that token capture works in demos and
tests without a download. No model was ever trained with it.
"""
