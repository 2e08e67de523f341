# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The README's examples, run exactly as they stand."""

import re
from pathlib import Path

import pytest

from isolated import python

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
ON_CUDA = [block for block in BLOCKS if "cuda" in block]
ON_CPU = [block for block in BLOCKS if "cuda" not in block]

# What the graph example promises: a replay under other lengths and contents is the eager call.
REPLAYS = """
for seed in range(4):
    g = torch.Generator("cuda").manual_seed(seed)
    for x in (k_cache, v_cache, q):
        x.copy_(torch.randn(x.shape, generator=g, device="cuda"))
    block_table.copy_(torch.randperm(pages, generator=g, device="cuda").view(B, 64))
    seq_lens.copy_(torch.randint(0, 64 * P + 1, (B,), generator=g, device="cuda"))
    seq_lens[seed] = 0                                       # padding
    rows = torch.randint(0, 5, (B,), generator=g, device="cuda")
    cu_seqlens_q[1:] = rows.cumsum(0)
    out.fill_(7)
    graph.replay()
    want = torch.full_like(out, 7)
    pagedecode.decode(q, k_cache, v_cache, block_table, seq_lens, cu_seqlens_q=cu_seqlens_q,
                      max_seqlen_q=4, out=want)
    total = int(cu_seqlens_q[-1])
    assert torch.equal(out, want) and (out[total:] == 7).all()
    assert out[:total].isfinite().all() and out[:total].any()
"""


def test_there_are_examples():
    assert len(ON_CPU) == 2 and len(ON_CUDA) == 1


@pytest.mark.parametrize("block", ON_CPU, ids=["numpy", "torch"])
def test_on_the_cpu(block):
    python(block)


@pytest.mark.gpu
def test_the_graph_on_cuda():
    python(ON_CUDA[0])
    python(ON_CUDA[0] + REPLAYS)
