"""A tiny language model with random weights, so that real model servers have something to run: as GGUF and as safetensors.

Formats: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3, little-endian) and
https://huggingface.co/docs/safetensors. The model speaks nonsense; it has the shape of a Llama with one layer and a
vocabulary of single bytes.
"""

from __future__ import annotations

import json
import random
import struct
from array import array
from pathlib import Path
from typing import Any

_U32, _F32, _STRING, _ARRAY, _I32 = 4, 6, 8, 9, 5
_WIDTH, _HEADS, _FEED, _CONTEXT = 32, 2, 64, 512
_ALIGNMENT = 32
_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _string(value)
    return struct.pack("<f" if kind == _F32 else "<i" if kind == _I32 else "<I", value)


def _field(key: str, kind: int, value: Any) -> bytes:
    """A key and its value; lists are arrays of ``kind``."""
    if isinstance(value, list):
        items = b"".join(_value(kind, each) for each in value)
        return _string(key) + struct.pack("<IIQ", _ARRAY, kind, len(value)) + items
    return _string(key) + struct.pack("<I", kind) + _value(kind, value)


def write_gguf(path: Path) -> None:
    """Write the model as one GGUF file; the same bytes each time."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    kinds = [2, 3, 3, *[6] * 256, 1]  # unknown, control, control, bytes, normal
    fields = [
        _field("general.architecture", _STRING, "llama"),
        _field("general.name", _STRING, "tiny"),
        _field("llama.context_length", _U32, _CONTEXT),
        _field("llama.embedding_length", _U32, _WIDTH),
        _field("llama.block_count", _U32, 1),
        _field("llama.feed_forward_length", _U32, _FEED),
        _field("llama.attention.head_count", _U32, _HEADS),
        _field("llama.attention.layer_norm_rms_epsilon", _F32, 1e-5),
        _field("llama.rope.dimension_count", _U32, _WIDTH // _HEADS),
        _field("tokenizer.ggml.model", _STRING, "llama"),
        _field("tokenizer.ggml.tokens", _STRING, tokens),
        _field("tokenizer.ggml.scores", _F32, [0.0] * len(tokens)),
        _field("tokenizer.ggml.token_type", _I32, kinds),
        _field("tokenizer.ggml.bos_token_id", _U32, 1),
        _field("tokenizer.ggml.eos_token_id", _U32, 2),
        _field("tokenizer.chat_template", _STRING, _TEMPLATE),
    ]
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (_WIDTH, len(tokens)),
        "output_norm.weight": (_WIDTH,),
        "output.weight": (_WIDTH, len(tokens)),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
        **{f"blk.0.attn_{name}.weight": (_WIDTH, _WIDTH) for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": (_WIDTH, _FEED),
        "blk.0.ffn_up.weight": (_WIDTH, _FEED),
        "blk.0.ffn_down.weight": (_FEED, _WIDTH),
    }
    chance = random.Random(7)
    infos, data = b"", b""
    for name, shape in shapes.items():
        weights = _weights(shape, chance)
        dimensions = struct.pack(f"<{len(shape)}Q", *shape)
        infos += _string(name) + struct.pack("<I", len(shape)) + dimensions + struct.pack("<IQ", 0, len(data))
        data += _padded(weights)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(fields)) + b"".join(fields) + infos
    path.write_bytes(_padded(head) + data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)


def _weights(shape: tuple[int, ...], chance: random.Random) -> bytes:
    """Random numbers for a matrix, ones for a norm."""
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    return array("f", [1.0] * count if len(shape) == 1 else [chance.gauss(0, 0.4) for _ in range(count)]).tobytes()


def write_checkpoint(directory: Path) -> None:
    """Write the model as a directory that the transformers library loads."""
    directory.mkdir(parents=True, exist_ok=True)
    # The byte-level alphabet: printable bytes stand for themselves, the others for characters from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    alphabet = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    vocabulary = {"<s>": 0, "</s>": 1, **{character: 2 + at for at, character in enumerate(alphabet)}}
    added = [{"id": at, "content": name, "special": True} for at, name in enumerate(("<s>", "</s>"))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    files: dict[str, Any] = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": _WIDTH,
            "intermediate_size": _FEED,
            "num_hidden_layers": 1,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _HEADS,
            "max_position_embeddings": _CONTEXT,
            "vocab_size": len(vocabulary),
            "bos_token_id": 0,
            "eos_token_id": 1,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1},
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [{**token, **flags} for token in added],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": _TEMPLATE,
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content), "utf-8")
    layer = "model.layers.0"
    square, tall, wide = (_WIDTH, _WIDTH), (_FEED, _WIDTH), (_WIDTH, _FEED)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (len(vocabulary), _WIDTH),
        "model.norm.weight": (_WIDTH,),
        "lm_head.weight": (len(vocabulary), _WIDTH),
        f"{layer}.input_layernorm.weight": (_WIDTH,),
        f"{layer}.post_attention_layernorm.weight": (_WIDTH,),
        **{f"{layer}.self_attn.{name}_proj.weight": square for name in "qkvo"},
        f"{layer}.mlp.gate_proj.weight": tall,
        f"{layer}.mlp.up_proj.weight": tall,
        f"{layer}.mlp.down_proj.weight": wide,
    }
    chance, header, data = random.Random(7), dict[str, Any](), b""
    for name, shape in shapes.items():
        weights = _weights(shape, chance)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(weights)]}
        data += weights
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
