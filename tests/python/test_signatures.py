# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The names, order and defaults of the public functions are those of the contract."""

import inspect

import pytest

import pagedecode

DECODE = """(q, k_cache, v_cache, block_table, seq_lens, *, cu_seqlens_q=None, max_seqlen_q=None,
kv_layout='NHD', kv_dtype=None, softmax_scale=None, causal=True, draft_mask=None, positions=None,
window_left=-1, softcap=0.0, alibi_slopes=None, sinks=None, rope=None, k_scale=None, v_scale=None,
out=None, lse=None, return_lse=False, lse_base='e', num_splits=None, batch_invariant=False,
workspace=None, stream=None)"""

SIGNATURES = {
    "decode": DECODE,
    "append": """(k, v, k_cache, v_cache, slots, *, kv_layout='NHD', k_scale=None, v_scale=None,
kv_dtype=None, stream=None)""",
    "slots": """(block_table, seq_lens, cu_seqlens_q, *, page_size, total_q=None, out=None,
stream=None)""",
    "merge_states": "(outs, lses, *, out=None, lse=None, lse_base='e', stream=None)",
    "move": "(k_cache, v_cache, src_slots, dst_slots, *, kv_layout='NHD', stream=None)",
    "backends": "()",
    "Rope": "(theta=10000.0, scale=1.0, interleaved=False)",
    "PageList": "(indptr, indices)",
    "PagedCache": "(num_pages, page_size)",
}


def plain(signature):
    """A signature without annotations."""
    params = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    return str(inspect.Signature(params))


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert plain(inspect.signature(getattr(pagedecode, name))) == SIGNATURES[name].replace(
        "\n", " "
    )


def test_public_names():
    """All of the contract is there, documented, and nothing underlined is exported."""
    names = (*SIGNATURES, "check", "workspace_size", "explain", "set_num_threads", "Unsupported")
    for name in names:
        assert getattr(pagedecode, name).__doc__, f"{name} has no docstring"
        assert name in pagedecode.__all__
    assert isinstance(pagedecode.__version__, str)


def test_methods_of_the_cache():
    for name, params in {
        "append": "(seq, count)",
        "keep": "(seq, count, accepted)",
        "truncate": "(seq, length)",
        "fork": "(seq, new_seq)",
        "free": "(seq)",
        "block_table": "(seqs, width=None)",
        "seq_lens": "(seqs)",
    }.items():
        method = getattr(pagedecode.PagedCache, name)
        assert plain(inspect.signature(method)) == params and method.__doc__, name
