# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The default prompts: copies and quotes, where drafts come true, and free text, where few do."""

_PAGING = (
    "A sequence's keys and values are kept in small blocks, and a table tells where each block is. "
    "Nothing needs to be contiguous, so no memory is lost between sequences, and two sequences "
    "that begin alike can share their first blocks."
)
_LIGHTHOUSE = (
    "The lighthouse at Cape Alder was built in 1902. It has a white tower, 11 metres tall, and its "
    "light can be seen from 20 miles away. Three families took turns to keep it until 1974, when "
    "the light was made automatic."
)
_MISSPELT = _LIGHTHOUSE.replace("metres", "meterss").replace("families", "familys")
_CODE = """```python
def moving_average(values, window):
    total = sum(values[:window])
    averages = [total / window]
    for i in range(window, len(values)):
        total += values[i] - values[i - window]
        averages.append(total / window)
    return averages
```"""

PROMPTS = {
    "copy": f"Repeat this text exactly:\n\n{_PAGING}",
    "correct": f"Correct the spelling mistakes in this text, change nothing else:\n\n{_MISSPELT}",
    "quote": (
        f"Here is a text.\n\n{_LIGHTHOUSE}\n\n"
        "Quote the sentence that says when the light was made automatic."
    ),
    "code": f"Repeat this function with a comment above each line:\n\n{_CODE}",
    "story": "Tell me a short story about a lighthouse keeper.",
}
