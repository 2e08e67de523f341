# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""`pagedecode demo`: real text by speculative decoding over a paged KV cache.

A real model (SmolLM2-135M-Instruct) answers several prompts in one batch. N-gram prompt lookup
drafts up to seven tokens for each prompt; every layer then verifies all drafts of all prompts in
one ragged multi-query `pagedecode.decode`. The files, in the order in which a call passes through
them:

    cli.py         options, the run, the exit code
    weights.py     GGUF file -> float32 matrices          tokenizer.py   text <-> tokens, ChatML
    draft.py       n-gram drafts, pure functions          pages.py       PagedCache, pages shuffled
    generate.py    the greedy speculative loop            model.py       Llama, attention injected
    attention.py   append + decode, one call a layer      arrays.py      NumPy, torch or CuPy
    verify.py      the proof against plain attention      report.py      streaming and the table
"""
