"""Names of the Hub, names of quantizations, and which files of a repository a name means."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from termchat.hub.choice import ChoiceError, choose, needed, variants
from termchat.hub.listing import HubFile, Listing, ListingError, read_listing
from termchat.hub.name import HubName, HubNameError, name_of_page
from termchat.hub.quantization import ORDER, answers, is_quantization, label_of

GB = 10**9
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("o/r", "hf:o/r"),
        ("HF:o/r", "hf:o/r"),
        ("https://huggingface.co/o/r", "hf:o/r"),
        ("huggingface.co/o/r/", "hf:o/r"),
        ("https://hf.co/o/r?library=x#top", "hf:o/r"),
        ("https://huggingface.co/o/r/tree/main", "hf:o/r"),
        ("https://huggingface.co/o/r/tree/v2", "hf:o/r:v2"),
        ("https://huggingface.co/o/r/blob/main/a/m-Q4_0.gguf", "hf:o/r:a/m-Q4_0.gguf"),
        ("https://huggingface.co/o/r/resolve/v2/m-Q4_0.gguf?download=true", "hf:o/r:m-Q4_0.gguf:v2"),
        ("https://huggingface.co/o/r/blob/main/README.md", "hf:o/r"),
        ("hf.co/o/r:Q4_K_M", "hf:o/r:Q4_K_M"),
        ("o/r:q4_0", "hf:o/r:q4_0"),
        ("https://huggingface.co/o/r:a/m.gguf:v2", "hf:o/r:a/m.gguf:v2"),
        ("o/r:v1:v2", None),
        ("o/r:x.bin", None),
        ("https://example.org/o/r", None),
        ("models/m.gguf", None),
        ("./r", None),
        ("../r", None),
        ("/o/r", None),
        ("~/r", None),
        ("a/b/c", None),
        ("o/r ", None),
        ("ö/r", None),
    ],
)
def test_pages_of_the_hub_have_names(text: str, name: str | None) -> None:
    assert name_of_page(text) == name
    if name is not None:
        assert str(HubName.parse(name)) == name


def listing(*paths: str, size: int = 1000, **sizes: int) -> Listing:
    files = tuple(HubFile(path, sizes.get(label_of(path), size), "ab" * 32) for path in paths)
    return Listing("o/r", COMMIT, "mit", False, files)


def chosen(found: Listing, name: str = "hf:o/r", free: int | None = None) -> list[str]:
    return [file.path for file in choose(found, HubName.parse(name), free).files]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:o/r", ("o/r", "", "main")),
        ("hf:o/r:Q4_K_M", ("o/r", "Q4_K_M", "main")),
        ("hf:o/r:q4km", ("o/r", "q4km", "main")),
        ("hf:o/r:ud-q2-k-xl", ("o/r", "ud-q2-k-xl", "main")),
        ("hf:o/r:fp16", ("o/r", "fp16", "main")),
        ("hf:o/r:x/y-00001-of-00002.gguf", ("o/r", "x/y-00001-of-00002.gguf", "main")),
        ("hf:o/r:safetensors", ("o/r", "safetensors", "main")),
        (f"hf:o/r:{COMMIT}", ("o/r", "", COMMIT)),
        ("hf:o/r:v1.0", ("o/r", "", "v1.0")),
        ("hf:o/r:refs/pr/3", ("o/r", "", "refs/pr/3")),
        (f"hf:o/r:Q8_0:{COMMIT}", ("o/r", "Q8_0", COMMIT)),
        ("hf:o/r:m.gguf:dev", ("o/r", "m.gguf", "dev")),
        ("hf:o/r:main", ("o/r", "", "main")),
    ],
)
def test_the_parts_of_a_name(text: str, expected: tuple[str, str, str]) -> None:
    name = HubName.parse(text)
    assert tuple(name) == expected
    assert HubName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "hf:",
        "hf:o",
        "hf:o/r/x",
        "hf:o/r@main",
        "hf:../..",
        "hf:o/r:",
        "hf:o/r:a..b",
        "hf:o/r:../x.gguf",
        "hf:o/r:/x.gguf",
        "hf:o/r:x\n.gguf",
        "hf:o/r:a:b",
        "hf:o/r:Q4_0:Q8_0:x",
        "hf:o/r:model.safetensors",
        "hf:o/r:pytorch_model.bin",
        "hf:o/r:x;rm",
        "hf:o/r:" + "x" * 5000 + "\0",
    ],
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(HubNameError) as caught:
        HubName.parse(text)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "label"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Phi-3-mini.Q5_0.gguf", "Q5_0"),
        ("Q8_0/m-Q8_0-00001-of-00003.gguf", "Q8_0"),
        ("DeepSeek-R1-UD-IQ1_S-00001-of-00003.gguf", "UD-IQ1_S"),
        ("m-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-fp16.gguf", "F16"),
        ("m.BF16.gguf", "BF16"),
        ("m-IQ3_XXS.gguf", "IQ3_XXS"),
        ("m-Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("m-TQ1_0.gguf", "TQ1_0"),
        ("gemma-3-4b-it-qat-q4_0-v2.gguf", "Q4_0"),
        ("model.gguf", ""),
        ("QwQ-32B.gguf", ""),
        ("seq2seq4.gguf", ""),
    ],
)
def test_the_quantization_in_a_files_name(file: str, label: str) -> None:
    assert label_of(file) == label
    assert not label or is_quantization(label)


def test_a_quantization_is_matched_however_it_is_written() -> None:
    rng = random.Random(8)
    for label in ORDER:
        for separator, case in itertools.product(("_", "-", ".", "", " "), (str.upper, str.lower, str.title)):
            wish = case(label.replace("_", separator))
            assert answers(label, wish), (label, wish)
            assert is_quantization(wish), wish
    for _ in range(300):
        one, other = rng.sample(ORDER, 2)
        assert not answers(one, other)


def test_the_best_that_fits_is_taken() -> None:
    found = listing(*(f"m-{label}.gguf" for label in ("Q2_K", "Q4_K_M", "Q5_K_M", "Q8_0", "F16")),
                    Q2_K=3 * GB, Q4_K_M=5 * GB, Q5_K_M=6 * GB, Q8_0=8 * GB, F16=16 * GB)  # fmt: skip
    assert chosen(found) == ["m-Q4_K_M.gguf"]
    assert chosen(found, free=64 * GB) == ["m-Q4_K_M.gguf"]
    assert chosen(found, free=needed(5 * GB)) == ["m-Q4_K_M.gguf"]
    assert chosen(found, free=needed(5 * GB) - 1) == ["m-Q2_K.gguf"]
    with pytest.raises(ChoiceError, match=r"nothing in o/r fits the 3\.0 GB .* smallest, Q2_K \(3\.0 GB\)"):
        chosen(found, free=3 * GB)
    assert chosen(found, "hf:o/r:f16", free=GB) == ["m-F16.gguf"]  # who names it, gets it


def test_what_is_no_model_is_never_chosen() -> None:
    others = ["mmproj-m-f16.gguf", "m-imatrix.gguf", "m-draft-Q4_K_M.gguf", "mtp-m-Q8_0.gguf", "vocab.gguf"]
    assert chosen(listing(*others, "m-Q6_K.gguf")) == ["m-Q6_K.gguf"]
    with pytest.raises(ChoiceError, match="holds no GGUF file that is a whole model; name a file"):
        chosen(listing(*others))
    assert chosen(listing(*others), "hf:o/r:m-draft-Q4_K_M.gguf") == ["m-draft-Q4_K_M.gguf"]


def test_a_model_that_an_adapter_was_merged_into_is_one() -> None:
    adapters = ["m-lora-f16.gguf", "adapter.gguf"]
    assert chosen(listing(*adapters, "m-LoRA-merged-Q8_0.gguf")) == ["m-LoRA-merged-Q8_0.gguf"]
    with pytest.raises(ChoiceError, match="holds no GGUF file that is a whole model"):
        chosen(listing(*adapters))


def test_all_parts_or_none() -> None:
    parts = [f"Q4_K_M/m-Q4_K_M-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
    whole = listing("m-Q8_0.gguf", *reversed(parts))
    assert chosen(whole) == parts
    assert chosen(whole, "hf:o/r:m-Q4_K_M-00002-of-00003.gguf") == parts
    assert chosen(whole, f"hf:o/r:{parts[2]}") == parts
    assert choose(whole, HubName.parse("hf:o/r"), None).size == 3000
    assert chosen(listing("m-Q8_0.gguf", *parts[:2])) == ["m-Q8_0.gguf"]
    with pytest.raises(ChoiceError, match="does not have all the parts"):
        chosen(listing(*parts[1:]), f"hf:o/r:{parts[1]}")


def test_a_listing_that_is_made_to_keep_one_busy() -> None:
    parts = [f"m{i}-Q4_0-00001-of-99999.gguf" for i in range(4000)]
    assert variants(listing(*parts)) == []
    with pytest.raises(ChoiceError, match="has no file"):
        chosen(listing(*(f"{'x' * 400}{i}.gguf" for i in range(1000))), f"hf:o/r:{'x' * 400}.gguf")


def test_a_model_in_pieces_is_no_part_of_the_choice_and_is_told_where_there_is_nothing_else() -> None:
    pieces = ("m.Q8_0.gguf.part1of2", "m.Q8_0.gguf.part2of2")
    assert chosen(listing("m.Q4_K_M.gguf", *pieces)) == ["m.Q4_K_M.gguf"]
    with pytest.raises(ChoiceError, match=r"holds m\.Q8_0\.gguf in pieces: download them, join them"):
        chosen(listing(*pieces))


def test_what_is_ambiguous_is_listed() -> None:
    two = listing("a-Q4_0.gguf", "b-Q4_0.gguf", "a-Q8_0.gguf")
    with pytest.raises(ChoiceError, match=r"several models in q4_0; name a file: a-Q4_0\.gguf, b-Q4_0\.gguf"):
        chosen(two, "hf:o/r:q4_0")
    with pytest.raises(ChoiceError, match="several models; name one: "):
        chosen(two)
    dynamic = listing("m-Q4_K_XL.gguf", "m-UD-Q4_K_XL.gguf")
    assert chosen(dynamic, "hf:o/r:q4kxl") == ["m-Q4_K_XL.gguf"]
    assert chosen(listing("m-UD-Q4_K_XL.gguf"), "hf:o/r:q4_k_xl") == ["m-UD-Q4_K_XL.gguf"]
    with pytest.raises(ChoiceError, match=r"nothing in 'Q4'; did you mean "):
        chosen(listing("m-Q4_K_M.gguf", "m-Q4_0.gguf"), "hf:o/r:Q4")


def test_safetensors_only_where_there_is_no_gguf_or_it_is_asked_for() -> None:
    shards = [f"model-{i:05}-of-00002.safetensors" for i in (1, 2)]
    folder = ["config.json", "tokenizer.json", "model.safetensors.index.json", *shards]
    junk = ["pytorch_model.bin", "onnx/model.onnx", "modeling.py", "consolidated.safetensors"]
    assert sorted(chosen(listing(*folder, *junk))) == sorted(folder)
    assert chosen(listing(*folder, "m-Q8_0.gguf")) == ["m-Q8_0.gguf"]
    assert sorted(chosen(listing(*folder, "m-Q8_0.gguf"), "hf:o/r:safetensors")) == sorted(folder)
    with pytest.raises(ChoiceError, match=r"config\.json or a part is missing"):
        chosen(listing(*folder[:-1]))
    empty = HubFile("added_tokens.json", 0)
    with_empty = listing(*folder)._replace(files=(*listing(*folder).files, empty))
    assert sorted(chosen(with_empty)) == sorted(folder)
    with pytest.raises(ChoiceError, match="pickles only"):
        chosen(listing("pytorch_model.bin"))
    with pytest.raises(ChoiceError, match="holds no model in safetensors; it has Q8_0"):
        chosen(listing("m-Q8_0.gguf"), "hf:o/r:safetensors")


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"sha": COMMIT}, {"sha": "x", "siblings": []}, {"sha": COMMIT, "siblings": [{}] * 30_000}],
)
def test_an_answer_that_is_none(answer: Any) -> None:
    with pytest.raises(ListingError):
        read_listing("o/r", answer)


def test_hostile_entries_of_a_listing_are_left_out() -> None:
    paths: list[Any] = [
        "../x.gguf",
        "/etc/x.gguf",
        "a\\b.gguf",
        "a\nb.gguf",
        "",
        3,
        None,
        "x" * 600,
        "ok/m.gguf",
    ]
    entries = [
        {"rfilename": path, "size": size} for path, size in zip(paths, [-1, True, "3"] * 3, strict=True)
    ]
    answer = {
        "sha": COMMIT,
        "siblings": [*entries, None, 3, {"rfilename": "b", "lfs": {"sha256": "zz", "size": 5}}],
        "cardData": {"license": ["mit"], "license_name": "a\n b"},
        "gated": "auto",
    }
    found = read_listing("o/r", answer)
    assert [file.path for file in found.files] == ["ok/m.gguf", "b"]
    assert found.files[1] == HubFile("b", 5, None, None)
    assert (found.licence, found.gated) == ("a b", True)


def test_choosing_never_mixes_models() -> None:
    rng = random.Random(3)
    for _ in range(200):
        paths = [
            f"{rng.choice(['', 'x/'])}{rng.choice('ab')}-{rng.choice(ORDER)}"
            f"{rng.choice(['', '-00001-of-00002', '-00002-of-00002'])}.gguf"
            for _ in range(rng.randrange(8))
        ]
        for variant in variants(listing(*dict.fromkeys(paths))):
            assert len({label_of(file.path) for file in variant.files}) == 1
            assert len({file.path[:3] for file in variant.files}) == 1
