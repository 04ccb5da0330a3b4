"""One prompt, one reply: text, JSON, events, what is saved, how it ends. The model is a script."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import threading
from types import SimpleNamespace

import pytest

from begun import saved
from engine import EngineConfig
from termchat.cli.console import Console
from termchat.cli.main import run
from termchat.cli.output import Messages, Output
from termchat.cli.serving import warn_if_slow
from termchat.store import Store
from termchat.thinking import ThinkingStyle
from waiting import wait_for

END = 0  # the lowest of the model's end tokens, which a script ends with

METRICS = [
    "load_ms",
    "queue_ms",
    "ttft_ms",
    "itl_ms",
    "itl_p95_ms",
    "e2e_ms",
    "tokens_per_second",
    "bandwidth_gbs",
    "bandwidth_peak_gbs",
]
USAGE = ["prompt_tokens", "cached_tokens", "completion_tokens", "draft_tokens", "accepted_tokens"]
OBJECT = [
    "id",
    "conversation",
    "model",
    "text",
    "thinking",
    "finish_reason",
    "seed",
    "usage",
    "metrics",
]


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def stored(home):
    """Roles, texts and states of all messages, conversation by conversation."""
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        return [
            [(message.role, message.text, message.status) for message in store.path(item.id)]
            for item in store.list_conversations()
        ]


def test_B079_plain_output_is_the_reply_and_a_newline(termchat, scripted, home):
    scripted("Hello there.\n\nBye")
    outcome = termchat("Hi")
    assert outcome.code == 0
    assert outcome.out == "Hello there.\n\nBye\n"
    assert outcome.err == ""
    assert stored(home) == [[("user", "Hi", "done"), ("assistant", "Hello there.\n\nBye", "done")]]


def test_no_stream_gives_the_same(termchat, scripted):
    scripted("Hello there.")
    assert termchat("--no-stream", "Hi").out == "Hello there.\n"


def test_B079_json_is_one_object_with_the_promised_fields(termchat, scripted, home):
    ids = scripted("Hello 🫠")
    outcome = termchat("--json", "--seed", "7", "Hi")
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.count("\n") == 1
    reply = strict(outcome.out)
    assert list(reply) == OBJECT
    assert list(reply["usage"]) == USAGE
    assert list(reply["metrics"]) == METRICS
    assert reply["text"] == "Hello 🫠"
    assert reply["thinking"] is None
    assert (reply["finish_reason"], reply["seed"], reply["model"]) == ("stop", 7, "smollm2-135m")
    assert reply["usage"]["completion_tokens"] == len(ids[0]) + 1  # with the end token
    assert reply["usage"]["prompt_tokens"] == 31
    assert reply["metrics"]["ttft_ms"] > 0
    assert reply["metrics"]["bandwidth_peak_gbs"] is None  # a script reads nothing
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        conversation = store.conversation(reply["conversation"])
        assert str(conversation.leaf_id) == reply["id"]


def test_B061_undefined_metrics_are_null(termchat, scripted):
    scripted("Hello")
    metrics = strict(termchat("--json", "-n", "1", "Hi").out)["metrics"]
    assert metrics["itl_ms"] is None
    assert metrics["itl_p95_ms"] is None
    assert metrics["tokens_per_second"] is None


def test_B061_a_reply_stopped_at_once_has_null_metrics(termchat, scripted):
    scripted("Hello")
    reply = strict(termchat("--json", "--stop", "Hel", "Hi").out)
    assert reply["text"] == ""
    assert reply["metrics"]["tokens_per_second"] is None


def test_jsonl_events(termchat, scripted):
    ids = scripted("One two three.")
    outcome = termchat("--jsonl", "Hi")
    assert outcome.code == 0
    start, *deltas, end = [strict(line) for line in outcome.out.splitlines()]
    assert list(start) == ["event", "id", "conversation", "model", "seed"]
    assert start["event"] == "start"
    assert all(list(delta) == ["event", "text", "token_ids"] for delta in deltas)
    assert "".join(delta["text"] for delta in deltas) == "One two three."
    assert [token for delta in deltas for token in delta["token_ids"]] == [*ids[0], END]
    assert list(end) == ["event", *OBJECT]
    assert {key: end[key] for key in ("id", "conversation", "model", "seed")} == {
        key: start[key] for key in ("id", "conversation", "model", "seed")
    }


def test_log_probabilities_in_json_are_one_for_each_token(termchat, scripted):
    ids = scripted("Hello 🫠 you")[0]
    reply = strict(termchat("--json", "--logprobs", "2", "-t", "0", "Hi").out)
    assert list(reply) == [*OBJECT, "logprobs"]
    assert [entry["token_id"] for entry in reply["logprobs"]] == [*ids, END]
    for entry in reply["logprobs"]:
        assert list(entry) == ["token", "token_id", "logprob", "top"]
        assert entry["top"][0] == {name: entry[name] for name in ("token", "token_id", "logprob")}
        assert len(entry["top"]) == 2
        assert entry["top"][1]["logprob"] < entry["logprob"] <= 0
    assert reply["logprobs"][0]["token"] == "Hello"
    assert reply["logprobs"][-1]["token"] == "<|endoftext|>", "a control token has its name"


def test_log_probabilities_in_events_go_with_their_tokens(termchat, scripted):
    ids = scripted("<think>Hm.</think>Hello there.\nBye STOP more")[0]
    outcome = termchat("--jsonl", "--logprobs", "0", "--stop", "STOP", "Hi")
    _, *deltas, end = map(strict, outcome.out.splitlines())
    found = []
    for delta in deltas:
        entries = delta.get("logprobs", [])
        assert [entry["token_id"] for entry in entries] == delta["token_ids"]
        assert all(entry["top"] == [] for entry in entries)
        found += entries
    assert end["logprobs"] == found
    assert [entry["token_id"] for entry in found] == ids[: len(found)]
    assert (end["text"], end["thinking"]) == ("Hello there.\nBye ", "Hm.")
    assert len(found) == end["usage"]["completion_tokens"] < len(ids)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--json", "--logprobs", "21", "Hi"], "logprobs must be in [0, 20], not 21"),
        (["--json", "--logprobs", "-1", "Hi"], "logprobs must be in [0, 20], not -1"),
        (["--logprobs", "3", "Hi"], "--logprobs needs --json or --jsonl"),
        (["--json", "--logprobs", "many", "Hi"], "'many' is not a valid whole number"),
    ],
)
def test_log_probabilities_that_cannot_be_are_usage_errors(termchat, scripted, arguments, words):
    outcome = termchat(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err


def test_a_drawn_seed_is_told_and_fits_into_a_double(termchat, scripted):
    scripted("a", "b")
    seeds = [strict(termchat("--json", "--no-save", "Hi").out)["seed"] for _ in range(2)]
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_thinking_goes_to_standard_error(termchat, scripted, home):
    scripted("<think>\nhm\n</think>\n\nYes.")
    outcome = termchat("Hi")
    assert outcome.out == "Yes.\n"
    assert outcome.err == "\nhm\n\n"
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        reply = store.path(store.list_conversations()[0].id)[-1]
    assert (reply.text, reply.thinking) == ("Yes.", "\nhm\n")


def test_thinking_in_json(termchat, scripted):
    scripted("<think>hm</think>Yes.", "<think>hm</think>Yes.")
    reply = strict(termchat("--json", "Hi").out)
    assert (reply["text"], reply["thinking"]) == ("Yes.", "hm")


def test_thinking_in_events(termchat, scripted):
    ids = scripted("<think>hm</think>Yes.")
    events = [strict(line) for line in termchat("--jsonl", "Hi").out.splitlines()]
    deltas = [event for event in events if event["event"] == "delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "hm"
    assert "".join(delta["text"] for delta in deltas) == "Yes."
    assert [token for delta in deltas for token in delta["token_ids"]] == [*ids[0], END]


def test_a_reply_that_begins_inside_its_thinking_part(termchat, scripted, monkeypatch):
    async def inside(*_):
        return ThinkingStyle(inside=True)

    monkeypatch.setattr("termchat.cli.serving.thinking_style", inside)
    scripted("hm</think>\n\nYes.")
    outcome = termchat("Hi")
    assert (outcome.out, outcome.err) == ("Yes.\n", "hm\n")


def test_raw_text_is_neither_templated_nor_divided(termchat, scripted):
    scripted("<think>hm</think>Yes.")
    reply = strict(termchat("--json", "--raw", "Hi").out)
    assert reply["text"] == "<think>hm</think>Yes."
    assert reply["usage"]["prompt_tokens"] == 1


def test_stats_are_words_on_standard_error(termchat, scripted):
    scripted("Hello there.")
    outcome = termchat("--stats", "Hi")
    assert outcome.out == "Hello there.\n"
    assert outcome.err.startswith(
        "prompt 31 tokens, 0 of them cached; reply 4 tokens (stop)\nfirst token after "
    )
    assert "tokens/s" in outcome.err
    assert "exact" in outcome.err


def test_a_length_stop_is_success(termchat, scripted):
    scripted("One two three four")
    outcome = termchat("--json", "-n", "2", "Hi")
    assert outcome.code == 0
    assert strict(outcome.out)["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("room", "where"),
    [
        ({"context": 8}, "where the context was full"),
        ({"blocks": 1}, "where the KV cache was full; --kv-memory gives it more"),
    ],
)
def test_a_reply_that_found_no_more_room_is_noted(termchat, scripted, room, where):
    """Text that just ends looks complete; only a limit that was asked for is no news."""
    text = "One two three four five six seven eight nine ten eleven twelve. " * 4
    for form in ((), ("--json",), ("--jsonl",)):
        scripted(text, **room)
        outcome = termchat(*form, "--raw", "Hi")
        assert (outcome.code, outcome.err) == (0, f"termchat: the reply ended {where}\n")
    scripted(text, **room)
    assert termchat("-n", "3", "--raw", "Hi").err == ""


def test_conversations_go_on(termchat, scripted, home, monkeypatch):
    scripted("Hello.")
    assert termchat("-s", "Be brief.", "Hi").code == 0
    prompts = []
    from engine import AsyncEngine

    generate = AsyncEngine.generate
    monkeypatch.setattr(
        AsyncEngine,
        "generate",
        lambda self, prompt, *a, **k: prompts.append(prompt) or generate(self, prompt, *a, **k),
    )
    scripted("Fine.")
    assert termchat("-c", "And you?").out == "Fine.\n"
    assert [(message.role, message.content) for message in prompts[0]] == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "And you?"),
    ]
    assert len(stored(home)) == 1
    assert [text for _, text, _ in stored(home)[0]] == ["Hi", "Hello.", "And you?", "Fine."]


def test_a_conversation_by_its_id(termchat, scripted, home):
    for answer in ("One.", "Two.", "Other."):
        scripted(answer)
        cid = "other" if answer == "Other." else "mine"
        reply = strict(termchat("--json", "--cid", cid, "Hi").out)
        assert reply["conversation"] == cid
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        assert [message.text for message in store.path("mine")] == ["Hi", "One.", "Hi", "Two."]
        assert [message.text for message in store.path("other")] == ["Hi", "Other."]


def test_an_unusable_id_is_refused_before_anything_is_loaded(termchat, linked_model):
    outcome = termchat("--cid", "has space", "Hi")
    assert outcome.code == 2
    assert "a conversation's id has 1 to 100" in outcome.err


def test_to_continue_nothing_begins_something(termchat, scripted, home):
    scripted("Hello.")
    outcome = termchat("-c", "Hi")
    assert outcome.code == 0
    assert "there is no conversation to continue" in outcome.err
    assert len(stored(home)) == 1


def test_no_save_saves_nothing(termchat, scripted, home):
    scripted("Hello.")
    reply = strict(termchat("--json", "--no-save", "Hi").out)
    assert reply["conversation"] is None
    assert isinstance(reply["id"], str)
    assert not (home / "data").exists()


def test_settings_of_the_user_and_of_the_conversation_hold(termchat, scripted, home, monkeypatch):
    from engine import AsyncEngine

    params = []
    generate = AsyncEngine.generate
    monkeypatch.setattr(
        AsyncEngine,
        "generate",
        lambda self, prompt, p, **k: params.append(p) or generate(self, prompt, p, **k),
    )
    (home / "config" / "termchat").mkdir(parents=True)
    (home / "config" / "termchat" / "config.toml").write_text("[sampling]\ntop_k = 11\nmax_tokens = 3\n")
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        store.create_conversation("mine", params={"max_tokens": 2, "nonsense": 1})
    scripted("One two three four.")
    assert termchat("--cid", "mine", "--min-p", "0.1", "Hi").code == 0
    # flag, conversation, user's settings, registry (temperature 0.2 and top_p 0.9 for this model)
    found = params[0]
    assert (found.min_p, found.max_tokens, found.top_k, found.temperature, found.top_p) == (
        0.1,
        2,
        11,
        0.2,
        0.9,
    )


def test_B025_a_prompt_beyond_the_context_is_exit_4_and_nothing_is_cut(termchat, scripted, home):
    scripted("never", context=64)
    outcome = termchat("--json", "Name the word.", stdin=b"word " * 100)
    assert outcome.code == 4
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert "tokens, but the context" in outcome.err
    assert "64" in outcome.err
    assert stored(home) == []


def test_B025_the_conversation_lives_on_after_a_prompt_that_was_too_long(termchat, scripted, home):
    scripted("Hello.", context=64)
    assert termchat("--cid", "mine", "Hi").code == 0
    scripted("never", context=64)
    assert termchat("--cid", "mine", stdin=b"word " * 100).code == 4
    scripted("Fine.", context=200)
    assert termchat("--cid", "mine", "And you?").code == 0
    assert [text for _, text, _ in stored(home)[0]] == ["Hi", "Hello.", "And you?", "Fine."]


def test_a_prompt_that_never_fits_the_cache_is_exit_4(termchat, scripted):
    scripted("never", blocks=2)
    outcome = termchat(stdin=b"word " * 100)
    assert outcome.code == 4
    assert outcome.err.count("\n") == 1


def test_errors_in_events(termchat, scripted):
    scripted("never", context=64)
    outcome = termchat("--jsonl", stdin=b"word " * 100)
    start, error = [strict(line) for line in outcome.out.splitlines()]
    assert start["event"] == "start"
    assert list(error) == ["event", "code", "message"]
    assert (error["event"], error["code"]) == ("error", "prompt_too_long")
    assert outcome.err == f"termchat: {error['message']}\n"


def test_an_unknown_model_in_events(termchat, home):
    outcome = termchat("--jsonl", "-m", "smollm3", "Hi")
    assert outcome.code == 3
    assert strict(outcome.out)["code"] == "model_unknown"


def test_an_unknown_model_is_exit_3_with_near_names(termchat, home):
    outcome = termchat("-m", "smollm2-135", "Hi")
    assert outcome.code == 3
    assert outcome.out == ""
    assert "smollm2-135m" in outcome.err


@pytest.mark.parametrize("name", ["", " ", "a/b.gguf", "~/none", "\udce9"])
def test_odd_names_of_models_are_exit_3(termchat, home, name):
    outcome = termchat("-m", name, "Hi")
    assert outcome.code == 3
    assert outcome.err.count("\n") == 1


def test_a_model_that_is_not_downloaded_is_exit_3_and_not_fetched_unasked(termchat, home, monkeypatch):
    monkeypatch.setattr("termchat.download.ensure", lambda *_: pytest.fail("downloaded unasked"))
    outcome = termchat("-m", "qwen2.5-7b", "Hi")
    assert outcome.code == 3
    assert "termchat models pull qwen2.5-7b" in outcome.err
    assert "--yes" in outcome.err


@pytest.mark.parametrize("arguments", [["Hi"], ["-m", "qwen2.5-7b", "--yes", "Hi"]])
def test_the_default_model_and_a_wanted_one_are_fetched(
    termchat, home, monkeypatch, scripted, default_model, arguments
):
    scripted("Hello.")
    (home / "cache" / "termchat" / "models" / "smollm2-135m" / default_model.name).unlink()
    fetched = []

    def ensure(registry, name, progress):
        from termchat.download.progress import Progress

        progress(Progress("download", 1, 2, 1.0))
        fetched.append(name)
        registry.path_of = lambda entry: default_model
        return default_model

    monkeypatch.setattr("termchat.download.ensure", ensure)
    outcome = termchat(*arguments)
    assert outcome.out == "Hello.\n"
    assert fetched == ["qwen2.5-7b" if "--yes" in arguments else "smollm2-135m"]
    assert "downloading" in outcome.err


def test_a_failing_engine_ends_the_reply_with_one_line(termchat, scripted, home, monkeypatch):
    scripted("One two three four five.")
    from engine.testing import ScriptedRunner

    steps = []
    whole = ScriptedRunner.launch

    def run_until_it_breaks(self, plan, **how):
        steps.append(plan)
        if len(steps) > 3:
            raise ZeroDivisionError("the machine is on fire")
        return whole(self, plan, **how)

    monkeypatch.setattr(ScriptedRunner, "launch", run_until_it_breaks)
    outcome = termchat("Hi")
    assert outcome.code == 1
    assert outcome.out == "One two three\n"
    assert outcome.err.count("\n") == 1
    assert "the machine is on fire" in outcome.err
    assert stored(home) == [[("user", "Hi", "done"), ("assistant", "One two three", "error")]]


def test_a_fault_of_the_program_is_one_line_and_a_log(termchat, linked_model, home, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oh no")

    monkeypatch.setattr("termchat.cli.oneshot.open_recording", broken)
    outcome = termchat("Hi")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "ZeroDivisionError: oh no" in outcome.err
    log = home / "state" / "termchat" / "termchat.log"
    assert str(log) in outcome.err
    assert "Traceback" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["newer", "read-only", "no-folder", "locked"])
def test_B081_B085_what_cannot_be_saved_is_one_warning(termchat, scripted, home, monkeypatch, problem):
    database = home / "data" / "termchat" / "termchat.db"
    lock = None
    if problem == "no-folder":
        (home / "data").write_text("a file where a folder should be")
    else:
        Store(database).close()
    if problem == "newer":
        db = sqlite3.connect(database)
        db.execute("PRAGMA user_version = 999")
        db.close()
    elif problem == "read-only":
        monkeypatch.setattr("termchat.store.database.writable", lambda path: False)
    elif problem == "locked":
        monkeypatch.setattr("termchat.cli.request.BUSY_SECONDS", 0.2)
        lock = sqlite3.connect(database, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
    before = database.read_bytes() if database.exists() else None
    scripted("Hello.")
    outcome = termchat("--json", "Hi")
    assert outcome.code == 0
    assert strict(outcome.out)["text"] == "Hello."
    assert strict(outcome.out)["conversation"] is None
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith("termchat: the conversation is not saved: ")
    if lock is not None:
        lock.close()
    if before is not None:
        assert database.read_bytes() == before


def test_to_continue_a_conversation_that_cannot_be_read_is_an_error(termchat, scripted, home):
    (home / "data").write_text("a file where a folder should be")
    scripted("never")
    outcome = termchat("-c", "Hi")
    assert outcome.code == 1
    assert outcome.out == ""


def test_B017_a_cancelled_turn_does_not_kill_the_conversation(termchat, scripted, home):
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        store.create_conversation("mine")
        store.add_message("mine", "user", "Hi")
        store.begin_reply("mine").finish("interrupted", "aborted")  # before a word came
        store.add_message("mine", "user", "Hello?")
        reply = store.begin_reply("mine")
        reply.append("I was")
        reply.finish("interrupted", "aborted")
    scripted("Yes.")
    assert termchat("--cid", "mine", "Are you there?").out == "Yes.\n"


class Interrupt:
    """Sends this process a signal when the reader has seen some bytes of standard output."""

    def __init__(self, number, after):
        self.read, self.write = os.pipe()
        self.received = bytearray()
        self._thread = threading.Thread(target=self._wait, args=(number, after))

    def _wait(self, number, after):
        sent = False
        while piece := os.read(self.read, 4096):
            self.received.extend(piece)
            if not sent and len(self.received) >= after:
                os.kill(os.getpid(), number)
                sent = True

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.write)
        self._thread.join()
        os.close(self.read)


LONG = "one two three four five six seven eight nine ten " * 200


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_stops_the_reply_and_keeps_what_is_there(scripted, home, number, code):
    scripted(LONG, step_seconds=0.02)
    errors_read, errors_write = os.pipe()
    with Interrupt(number, after=20) as reader:
        console = Console(
            Output(reader.write), Messages(errors_write), stdin=os.open(os.devnull, os.O_RDONLY)
        )
        assert run(["Hi"], console) == code
    os.close(errors_write)
    with open(errors_read) as errors:
        assert errors.read() == ""
    text = reader.received.decode()
    assert text.endswith("\n")
    assert 20 <= len(text) < len(LONG)
    assert LONG.startswith(text[:-1])
    assert stored(home) == [[("user", "Hi", "done"), ("assistant", text[:-1], "interrupted")]]


@pytest.mark.slow
def test_a_signal_with_json_prints_the_object(scripted, home):
    scripted(LONG, step_seconds=0.02)
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    console = Console(Output(write), Messages(write), stdin=null)

    def interrupt():
        wait_for(lambda: saved(home).text)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code = run(["--json", "Hi"], console)
    thread.join()
    os.close(write)
    with open(read) as out:
        reply = strict(out.read())
    assert code == 130
    assert reply["finish_reason"] == "aborted"
    assert LONG.startswith(reply["text"])
    assert reply["metrics"]["bandwidth_peak_gbs"] is None


@pytest.mark.parametrize("form", [[], ["--jsonl"], ["--json"]])
def test_B075_a_closed_pipe_stops_the_reply_quietly(scripted, home, form):
    scripted(LONG, step_seconds=0.02)
    read, write = os.pipe()
    errors_read, errors_write = os.pipe()

    def leave_early():
        if form == ["--json"]:
            wait_for(lambda: saved(home).text)
        else:
            os.read(read, 4)
        os.close(read)

    reader = threading.Thread(target=leave_early)
    reader.start()
    console = Console(Output(write), Messages(errors_write), stdin=os.open(os.devnull, os.O_RDONLY))
    assert run([*form, "Hi"], console) == 141
    reader.join()
    os.close(write)
    os.close(errors_write)
    with open(errors_read) as errors:
        assert errors.read() == ""
    conversation = stored(home)[0]
    assert conversation[0] == ("user", "Hi", "done")
    if len(conversation) > 1:
        assert conversation[1][2] == "interrupted"
        assert len(conversation[1][1]) < len(LONG)


def test_B075_a_closed_standard_output_ends_at_once(home, capfd):
    console = Console(Output(1, closed=True), closed=frozenset({1}))
    assert run(["Hi"], console) == 141
    assert run(["models", "list"], console) == 141
    assert run(["--help"], console) == 141
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "arguments", [["Hi"], ["--json", "Hi"], ["--jsonl", "Hi"], ["models", "list"], ["--help"]]
)
def test_a_full_disk_is_one_line(scripted, arguments):
    scripted("Hello.")
    errors_read, errors_write = os.pipe()
    with open("/dev/full", "wb") as full:
        console = Console(
            Output(full.fileno()), Messages(errors_write), stdin=os.open(os.devnull, os.O_RDONLY)
        )
        assert run(arguments, console) == 1
    os.close(errors_write)
    with open(errors_read) as errors:
        assert errors.read() == "termchat: cannot write to standard output: No space left on device\n"


def on_terminal(arguments, typed=b""):
    """Run with a terminal as all standard streams; what it showed."""
    main, side = pty.openpty()
    os.write(main, typed)
    shown = bytearray()

    def drain():
        try:
            while piece := os.read(main, 4096):
                shown.extend(piece)
        except OSError:
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    console = Console(Output(side), Messages(side), stdin=side)
    code = run(arguments, console)
    os.close(side)
    reader.join()
    os.close(main)
    return code, shown.decode().replace("\r\n", "\n")


def test_a_reply_cannot_move_the_terminal(scripted):
    scripted("\x1b]0;owned\x07red \x1b[31mtext\x1b[2J\x9b1A end")
    code, shown = on_terminal(["Hi"])
    assert code == 0
    assert "text" in shown
    assert shown.endswith(" end\n")
    assert not any(control in shown for control in ("\x1b", "\x07", "\x9b"))


def test_a_pipe_gets_the_reply_as_it_is(termchat, scripted):
    scripted("red \x1b[31mtext")
    assert termchat("Hi").out == "red \x1b[31mtext\n"


@pytest.mark.parametrize("variable", [None, "NO_COLOR=1", "TERM=dumb"])
def test_thinking_on_a_terminal_is_dim_unless_no_color(scripted, monkeypatch, variable):
    if variable:
        monkeypatch.setenv(*variable.split("="))
    colour = variable is None
    scripted("<think>so \x1b[31mred</think>Yes.")
    _, shown = on_terminal(["Hi"])
    assert shown.startswith("\x1b[2mso " if colour else "so ")
    assert shown.count("\x1b") == (2 if colour else 0)
    assert shown.endswith("Yes.\n")


@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 3), (b"y\n", 0)])
def test_on_a_terminal_a_download_is_asked_for(scripted, home, monkeypatch, default_model, typed, code):
    scripted("Hello.")

    def ensure(registry, name, progress):
        registry.path_of = lambda entry: default_model
        return default_model

    monkeypatch.setattr("termchat.download.ensure", ensure)
    result, shown = on_terminal(["-m", "qwen2.5-7b", "Hi"], typed)
    assert result == code
    assert "Download it? [Y/n]" in shown
    assert ("Hello." in shown) is (code == 0)


@pytest.mark.parametrize(
    ("backend", "options", "warned"),
    [("reference", [], True), ("scripted", [], False), ("reference", ["--json"], True)],
)
def test_a_slow_backend_that_nobody_asked_for_is_one_line(
    scripted, termchat, monkeypatch, backend, options, warned
):
    scripted("Hello")
    monkeypatch.setattr("engine.testing.ScriptedRunner.backend", backend)
    outcome = termchat("Hi", *options)
    assert outcome.code == 0
    assert "Hello" in outcome.out
    assert outcome.err.count("reference backend") == outcome.err.count("\n") == warned


def test_a_slow_backend_that_was_asked_for_is_no_news(capfd):
    snapshot = SimpleNamespace(backend="reference")
    for options, warned in (
        ({}, True),
        ({"backend": "reference"}, False),
        ({"dtype": "bfloat16"}, False),
        ({"tensor_parallel": 2}, False),
        ({"pipeline_parallel": 2}, False),
    ):
        engine, config = SimpleNamespace(snapshot=lambda: snapshot), EngineConfig(model="x", **options)
        warn_if_slow(Console(), SimpleNamespace(engine=engine, choice=SimpleNamespace(config=config)))
        assert ("termchat doctor" in capfd.readouterr().err) == warned


def test_N012_a_text_that_cannot_fit_is_neither_stored_nor_indexed(termchat, scripted, home, monkeypatch):
    """300,000 words: refused before the store has seen them; what fits is stored first, as ever."""
    seen = []
    begin = Store.begin_turn
    monkeypatch.setattr(Store, "begin_turn", lambda *a, **k: (seen.append(a), begin(*a, **k))[1])
    scripted("x", context=200)
    outcome = termchat("Summarize", stdin=b"some words " * 150_000)
    assert outcome.code == 4
    assert "tokens, but the context of" in outcome.err
    assert outcome.err.count("\n") == 1
    assert seen == []
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        assert store.list_conversations() == []
