"""The language model: windows of texts and token files, the decoder, what it learns and writes."""

from __future__ import annotations

import gzip
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from p2pnode.tasks.corpus import open_corpus
from p2pnode.tasks.decoder import Cache, Decoder
from p2pnode.tasks.find import load_task
from p2pnode.tasks.generation import Generation, as_text, next_tokens
from p2pnode.tasks.gpt import SIZES, Gpt
from p2pnode.tasks.tokenizer import ByteTokenizer
from p2pnode.training.host import ModelHost, build_model
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import UsageError

SENTENCE = b"the quick brown fox jumps over the lazy dog. "
TINY = {"width": 16, "layers": 2, "heads": 2, "context": 16, "batch_size": 8, "warmup": 1}
WORDS = {word: number for number, word in enumerate(["[UNK]", *SENTENCE.decode().replace(".", " .").split(), "cat"])}
TOKENIZER = (
    '{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,'
    '"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,'
    f'"model":{{"type":"WordLevel","vocab":{WORDS!s},"unk_token":"[UNK]"}}}}'.replace("'", '"')
)


def book(folder: Path, times: int = 100, name: str = "book.txt") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SENTENCE * times)
    return path


def token_file(path: Path, tokens: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    tokens.astype("<u2").tofile(path)
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


class TestWindows:
    def test_windows_cover_the_text_and_the_end_is_held_out(self, tmp_path):
        raw = np.frombuffer(book(tmp_path).read_bytes(), np.uint8)
        corpus = open_corpus(str(tmp_path / "book.txt"), 16, 256)
        windows = (len(raw) - 1) // 16
        assert len(corpus.train) + len(corpus.test) == windows and len(corpus.test) == windows // 20
        both = torch.cat([corpus.train.columns()["x"], corpus.test.columns()["x"]]).numpy()
        assert np.array_equal(both[:, :-1].ravel(), raw[: windows * 16])
        assert np.array_equal(both[:-1, -1], both[1:, 0])
        some = corpus.train.__getitems__([5, 0, 5])["x"]
        assert np.array_equal(some.numpy(), both[[5, 0, 5]]) and torch.equal(corpus.train[5]["x"], some[0])

    def test_a_directory_is_all_its_text_files_in_order(self, tmp_path):
        place = tmp_path / "texts"
        book(place, 50, "b/two.txt")
        book(place, 50, "a.txt")
        (place / "c.md.gz").write_bytes(gzip.compress(SENTENCE * 50))
        (place / "picture.png").write_bytes(bytes(5000))
        (place / ".hidden").write_bytes(SENTENCE * 50)
        (place / "short.txt").write_bytes(b"short")
        windows = open_corpus(str(place), 16, 256).train
        assert windows.targets is not None and np.bincount(windows.targets).tolist() == [133, 133, 133]
        for number in range(3):
            assert bytes(windows[int(np.flatnonzero(windows.targets == number)[0])]["x"][:16].tolist()) == SENTENCE[:16]

    def test_more_files_than_a_process_may_open(self, tmp_path):
        for number in range(1500):
            book(tmp_path, 1, f"{number:04}.txt")
        windows = open_corpus(str(tmp_path), 16, 256).train
        assert len(windows.columns()["x"]) == len(windows) == 1500 * 2 - 1

    def test_token_files_as_nanogpt_writes_them(self, tmp_path):
        tokens = np.arange(1000) % 300
        token_file(tmp_path / "data" / "train.bin", tokens)
        token_file(tmp_path / "data" / "val.bin", tokens[::-1][:100])
        corpus = open_corpus(str(tmp_path / "data"), 16, 300)
        assert (len(corpus.train), len(corpus.test)) == (62, 6)
        assert np.array_equal(corpus.train.columns()["x"].numpy()[:, :16].ravel(), tokens[: 62 * 16])
        single = open_corpus(str(tmp_path / "data" / "train.bin"), 16, 300)
        assert (len(single.train), len(single.test)) == (59, 3)

    def test_a_little_text_still_has_something_to_test_on(self, tmp_path):
        path = tmp_path / "small.txt"
        path.write_bytes(SENTENCE[:33])
        corpus = open_corpus(str(path), 16, 256)
        assert (len(corpus.train), len(corpus.test)) == (1, 1)


BAD = [
    (lambda path: None, "neither a file nor a directory"),
    (lambda path: path.mkdir(), "no text files in it; put .txt"),
    (lambda path: (path.mkdir(), (path / "a.png").write_bytes(bytes(99))), "none of its 1 files is text"),
    (lambda path: path.write_bytes(b""), "too little text"),
    (lambda path: path.write_bytes(b"x" * 32), "33 bytes, two times the context"),
    (lambda path: (path.mkdir(), (path / "a.txt").write_bytes(b"x" * 20)), "too little text"),
    (lambda path: path.write_bytes(bytes(range(256)) * 9), "is no text; tokens must be in a file that ends in .bin"),
    (lambda path: (path.mkdir(), (path / "train.bin").write_bytes(b"x" * 99)), "odd number"),
    (lambda path: (path.mkdir(), token_file(path / "train.bin", np.full(99, 50300))), "50300, and the vocabulary"),
    (lambda path: (path.mkdir(), (path / "tokenizer.json").write_text("{}")), "is no tokenizer"),
]


class TestGpt:
    @pytest.mark.parametrize(("make", "said"), BAD)
    def test_what_cannot_be_learned_from_is_named(self, tmp_path, make, said):
        make(tmp_path / "place")
        with pytest.raises(UsageError, match=said):
            load_task("gpt", TINY, str(tmp_path / "place")).data()

    def test_without_a_place_to_read_it_says_so(self):
        with pytest.raises(UsageError, match="--data FILE"):
            load_task("gpt").data()

    def test_sizes_from_a_tenth_to_124_million_parameters(self):
        counts = {}
        for size in SIZES:
            with torch.device("meta"):
                counts[size] = sum(part.numel() for part in load_task("gpt", {"size": size}).model().parameters())
        assert counts["nano"] < 120_000 and 800_000 < counts["tiny"] < 900_000 and 4e6 < counts["small"] < 6e6
        with torch.device("meta"):
            large = load_task("gpt", {"size": "gpt2", "vocabulary": 50_257}).model()
        assert 123e6 < sum(part.numel() for part in large.parameters()) < 125e6

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"size": "smal"}, "did you mean .small"),
            ({"width": 30, "heads": 4}, "multiple of two times heads"),
            ({"layers": 10**9}, "layers"),
            ({"algorithm": "muom"}, "did you mean .muon"),
            ({"width": -4}, "above zero"),
        ],
    )
    def test_wrong_options_are_named(self, options, said):
        with pytest.raises(UsageError, match=said):
            load_task("gpt", options).model()

    def test_no_token_sees_the_tokens_after_it_and_places_matter(self):
        model = build_model(load_task("gpt", TINY), 0).eval()
        for part in model.parameters():  # blocks begin as the identity
            torch.nn.init.normal_(part, std=0.3, generator=torch.Generator().manual_seed(part.numel()))
        one = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(1))
        other = one.clone()
        other[0, 10:] = 7
        swapped = one[:, [1, 0, *range(2, 16)]]
        with torch.no_grad():
            torch.testing.assert_close(model(one)[0, :10], model(other)[0, :10])
            assert not torch.allclose(model(one)[0, 10:], model(other)[0, 10:])
            assert not torch.allclose(model(one)[0, 5], model(swapped)[0, 5])

    def test_going_on_with_a_cache_is_the_same_as_all_at_once(self):
        model = build_model(load_task("gpt", TINY), 0).eval()
        assert isinstance(model, Decoder)
        for part in model.parameters():
            torch.nn.init.normal_(part, std=0.3, generator=torch.Generator().manual_seed(part.numel()))
        tokens = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(1))
        cache = Cache()
        with torch.no_grad():
            parts = [model(tokens[:, :5], cache), *(model(tokens[:, at : at + 1], cache) for at in range(5, 12))]
            torch.testing.assert_close(torch.cat(parts, 1), model(tokens), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("algorithm", ["muon", "adamw"])
    def test_it_learns_and_writes(self, tmp_path, algorithm):
        task = load_task("gpt", {**TINY, "algorithm": algorithm, "learning_rate": 0.01}, str(book(tmp_path)))
        host = ModelHost(task)
        trainer = Trainer(host)
        before = trainer.evaluate(host.genesis)
        weights = trainer.steps(host.genesis, 150).weights
        after = trainer.evaluate(weights)
        assert before.loss > math.log(100) and after.loss < 0.8 and after.accuracy is None
        (bits,) = task.figures(after)
        assert bits.name == "bits_per_byte" and bits.value == pytest.approx(after.loss / math.log(2))
        host.put(weights)
        host.model.eval()
        how = Generation(length=60, temperature=0.2, seed=1)
        said = "".join(task.generate(host.model, "the quick", how))
        assert len(said) == 60 and said == "".join(task.generate(host.model, "the quick", how))
        assert any(word in said for word in ("brown", "fox", "jumps", "over", "lazy"))
        assert task.sample(host.model).startswith("The ")
        with pytest.raises(UsageError, match=r"17 tokens.* looks at 16"):
            task.generate(host.model, "x" * 17, how)

    def test_the_probe_fits_the_model_and_is_the_same_everywhere(self, tmp_path):
        probe = load_task("gpt", TINY, str(book(tmp_path))).probe()["x"]
        assert probe.shape == (128, 16) and torch.equal(probe, load_task("gpt", TINY).probe()["x"])
        wide = load_task("gpt", {**TINY, "vocabulary": 5000, "tokenizer": "tokens"})
        assert 256 < int(wide.probe()["x"].max()) < 5000
        assert build_model(wide, 0)(wide.probe()["x"]).shape == (128, 16, 5000)


class TestTokenizers:
    def test_a_tokenizer_in_the_folder_of_the_texts_cuts_them_once(self, tmp_path):
        place = tmp_path / "texts"
        book(place)
        (place / "tokenizer.json").write_text(TOKENIZER)
        task = load_task("gpt", TINY, str(place))
        assert isinstance(task, Gpt)
        assert task.options["vocabulary"] == max(WORDS.values()) + 1 and len(str(task.options["tokenizer"])) == 16
        first = task.data()["x"][0].tolist()
        assert task.cutter.decode(first[:5]) == "the quick brown fox jumps"
        cached = list((tmp_path / "cache").rglob("*.bin"))
        assert len(cached) == 1
        changed = cached[0].stat().st_mtime_ns
        assert load_task("gpt", {**TINY, "context": 8}, str(place)).data()["x"].shape[1] == 9
        assert cached[0].stat().st_mtime_ns == changed, "they are not cut again"
        assert [figure.name for figure in task.figures(Trainer(ModelHost(task)).evaluate(ModelHost(task).genesis))] == [
            "perplexity"
        ]

    def test_members_must_cut_texts_alike(self, tmp_path):
        plain, cut = tmp_path / "plain", tmp_path / "cut"
        book(plain)
        book(cut)
        (cut / "tokenizer.json").write_text(TOKENIZER)
        founder, other = load_task("gpt", TINY, str(cut)), load_task("gpt", TINY, str(plain))
        with pytest.raises(UsageError, match=r"the run learns the tokenizer .* put the run's tokenizer.json there"):
            load_task("gpt", founder.options, str(plain))
        with pytest.raises(UsageError, match=r"the run learns bytes.* take tokenizer.json away"):
            load_task("gpt", other.options, str(cut))
        assert load_task("gpt", founder.options, str(cut)).options == founder.options

    def test_without_the_package_it_says_what_to_install(self, tmp_path, monkeypatch):
        book(tmp_path / "texts")
        (tmp_path / "texts" / "tokenizer.json").write_text(TOKENIZER)
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(UsageError, match="pip install tokenizers"):
            load_task("gpt", TINY, str(tmp_path / "texts")).data()

    def test_tokens_of_unknown_meaning_are_learned_but_not_written(self, tmp_path):
        path = token_file(tmp_path / "train.bin", np.arange(2000) % 90)
        task = load_task("gpt", {**TINY, "vocabulary": 90}, str(path))
        model = task.model()
        assert task.sample(model) == ""
        with pytest.raises(UsageError, match="not known here"):
            task.generate(model, "x", Generation())


class TestGeneration:
    def test_the_text_goes_on_beyond_the_context(self):
        model = build_model(load_task("gpt", TINY), 0).eval()
        assert isinstance(model, Decoder)
        found = list(next_tokens(model, [1, 2, 3], Generation(length=50, seed=3)))
        assert len(found) == 50 and found == list(next_tokens(model, [1, 2, 3], Generation(length=50, seed=3)))
        assert found != list(next_tokens(model, [1, 2, 3], Generation(length=50, seed=4)))
        likeliest = list(next_tokens(model, [1, 2, 3], Generation(length=5, temperature=0.0, seed=3)))
        assert likeliest == list(next_tokens(model, [1, 2, 3], Generation(length=5, top_k=1, seed=9)))
        assert torch.is_grad_enabled()

    def test_characters_of_several_bytes_come_whole(self):
        text = "aé€😀b"
        pieces = list(as_text(iter(text.encode()), ByteTokenizer()))
        assert "".join(pieces) == text and [piece for piece in pieces if piece] == list(text)
        broken = "".join(as_text(iter([0xFF, 0x61, 0xE2]), ByteTokenizer()))
        assert broken.endswith("�") and "a" in broken
