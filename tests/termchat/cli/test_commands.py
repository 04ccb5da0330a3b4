"""Commands beside the prompt: models, history, config, plan, doctor, bench."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import tomllib

import pytest

from fake_gpus import GB, FakeGpu
from termchat.settings import SAMPLING
from termchat.store import Store

BENCH = [
    "concurrency",
    "prompt_tokens",
    "output_tokens",
    "ttft_ms",
    "itl_ms",
    "e2e_ms",
    "tps_user",
    "tps_system",
    "rps",
    "prefill_tps",
    "bandwidth_gbs",
    "bandwidth_peak_gbs",
    "kv_utilisation",
    "draft_tokens",
    "accepted_tokens",
    "exact",
]


@pytest.fixture
def chats(home):
    """Two stored conversations."""
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        for id, text, answer in (("aaa1", "Hello \x1b[31m漢字", "Hi."), ("bbb2", "Rain?", "Tomorrow.")):
            store.create_conversation(id, model="smollm2-135m", system="Be brief.")
            store.add_message(id, "user", text)
            reply = store.begin_reply(id)
            reply.append(answer)
            reply.finish()


def test_models_list(termchat, linked_model):
    outcome = termchat("models", "list")
    assert outcome.code == 0
    header, first, *_ = outcome.out.splitlines()
    assert header.split() == ["NAME", "SIZE", "LICENCE", "STATE", "DESCRIPTION"]
    assert first.split()[:6] == ["smollm2-135m", "98.4", "MB", "Apache-2.0", "here", "(default)"]


def test_models_list_json(termchat, linked_model):
    found = {item["name"]: item for item in json.loads(termchat("models", "list", "--json").out)}
    assert found["smollm2-135m"]["size"] == 98362432
    assert found["smollm2-135m"]["licence"] == "Apache-2.0"
    assert found["smollm2-135m"]["path"].endswith(".gguf")
    assert found["qwen2.5-7b"]["path"] is None


def test_models_show_and_rm(termchat, linked_model, home):
    assert "sha256:" in termchat("models", "show", linked_model).out
    assert json.loads(termchat("models", "show", linked_model, "--json").out)["name"] == linked_model
    assert termchat("models", "rm", linked_model).code == 0
    again = termchat("models", "rm", linked_model)
    assert again.code == 1
    assert "not downloaded" in again.err
    unknown = termchat("models", "show", "smollm2-135")
    assert unknown.code == 3
    assert "smollm2-135m" in unknown.err


def test_models_pull(termchat, linked_model, monkeypatch, default_model):
    assert "is here already" in termchat("models", "pull", linked_model).out
    monkeypatch.setattr("termchat.download.ensure", lambda registry, name, progress: default_model)
    outcome = termchat("models", "pull", "qwen2.5-0.5b", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["name"] == "qwen2.5-0.5b"
    assert "491.4 MB, Apache-2.0" in outcome.err


def test_history_list(termchat, chats):
    rows = termchat("history", "list").out.splitlines()
    assert rows[0].split()[:3] == ["ID", "LAST", "USED"]
    assert [row.split()[0] for row in rows[1:]] == ["bbb2", "aaa1"]
    assert "\x1b" not in "".join(rows)
    found = json.loads(termchat("history", "list", "--json", "-n", "1").out)
    assert [(item["id"], item["messages"], item["title"]) for item in found] == [("bbb2", 2, "Rain?")]


def test_history_show(termchat, chats):
    text = termchat("history", "show", "bbb").out
    assert text.index("Be brief.") < text.rindex("Rain?") < text.index("Tomorrow.")
    found = json.loads(termchat("history", "show", "aaa1", "--json").out)
    assert [message["text"] for message in found["messages"]] == ["Hello \x1b[31m漢字", "Hi."]
    missing = termchat("history", "show", "zzz")
    assert missing.code == 1
    assert missing.err == "termchat: there is no conversation 'zzz'\n"


def test_history_rm_and_purge(termchat, chats, home):
    assert termchat("history", "rm", "aaa", "nosuch").code == 1
    assert len(termchat("history", "list").out.splitlines()) == 3, "what cannot be done whole is not begun"
    assert termchat("history", "rm", "aaa", "aaa1", "aaa").code == 0
    assert [row.split()[0] for row in termchat("history", "list").out.splitlines()[1:]] == ["bbb2"]
    assert termchat("history", "purge").out == "conversations removed for good: 1\n"
    assert termchat("history", "purge").out == "conversations removed for good: 0\n"
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        assert [each.id for each in store.list_conversations()] == ["bbb2"]
    assert "漢字".encode() not in (home / "data" / "termchat" / "termchat.db").read_bytes()
    assert termchat("history", "rm", "aaa1").code == 1


def test_history_search(termchat, chats):
    assert [row.split()[0] for row in termchat("history", "search", "漢字").out.splitlines()[1:]] == ["aaa1"]
    assert json.loads(termchat("history", "search", "--json", "tomorrow").out)[0]["conversation_id"] == "bbb2"
    assert json.loads(termchat("history", "search", "--json", "nowhere").out) == []


def test_history_import_brings_back_what_export_has_written(termchat, chats, home):
    file = home / "all.json"
    document = termchat("history", "export").out
    file.write_text(document)
    known = {each["id"] for each in json.loads(document)["conversations"]}
    assert termchat("history", "import", str(file)).out == f"conversations added: {len(known)}\n"
    ids = {each["id"] for each in json.loads(termchat("history", "list", "--json").out)}
    assert len(ids) == 2 * len(known), "none has taken another's place"
    for id in ids:
        assert termchat("history", "rm", id).code == 0
    termchat("history", "purge")
    added = json.loads(termchat("history", "import", "--json", "-", stdin=document.encode()).out)
    assert {each["id"] for each in added} == known
    again = termchat("history", "export").out
    assert [each["messages"][0]["text"] for each in json.loads(again)["conversations"]] == [
        each["messages"][0]["text"] for each in json.loads(document)["conversations"]
    ]


def test_history_import_adds_all_of_a_call_or_nothing(termchat, chats, home):
    good, broken = home / "good.json", home / "broken.json"
    document = termchat("history", "export").out
    good.write_text(document)
    broken.write_text(document.replace('"role": "user"', '"role": "nobody"', 1))
    before = termchat("history", "list", "--json").out
    outcome = termchat("history", "import", str(good), str(broken))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert "has a role or status that termchat does not know" in outcome.err
    assert termchat("history", "list", "--json").out == before


def test_history_rename(termchat, chats):
    assert termchat("history", "rename", "aaa", "  two", "words\n ").out == "two words\n"
    assert "two words" in termchat("history", "list").out
    automatic = termchat("history", "rename", "aaa").out
    assert automatic not in ("two words\n", "\n")
    assert termchat("history", "rename", "zzz", "x").code == 1


def test_history_export(termchat, chats, home):
    everything = json.loads(termchat("history", "export").out)
    assert [item["id"] for item in everything["conversations"]] == ["bbb2", "aaa1"]
    twice = json.loads(termchat("history", "export", "aaa1", "aaa", "bbb").out)["conversations"]
    assert [item["id"] for item in twice] == ["aaa1", "bbb2"]
    assert termchat("history", "export", "aaa1", "-f", "md", "-o", str(home / "out.md")).out == ""
    assert "# Hello" in (home / "out.md").read_text()
    assert (home / "out.md").stat().st_mode & 0o077 == 0
    assert termchat("history", "export", "-o", str(home)).code == 2


@pytest.mark.parametrize("closed", ["a folder", "a name"])
def test_a_place_that_may_not_be_looked_at_is_a_sentence(termchat, chats, home, monkeypatch, closed):
    """Where Path.is_dir() and its like raise: a folder closed to this user, and, as root too, a long name."""
    place = home / "closed" / "x" if closed == "a folder" else home / ("x" * 300)
    (home / "closed").mkdir(mode=0)
    reason = "File name too long" if closed == "a name" else "Permission denied"
    if closed == "a folder" and os.access(place.parent, os.X_OK):
        pytest.skip("root looks everywhere")
    outcome = termchat("history", "export", "-o", str(place))
    assert (outcome.code, outcome.err) == (1, f"termchat: cannot write {place}: {reason}\n")
    outcome = termchat("-m", str(place), "Hi")
    expected = f"termchat: there is no model file or folder {place}: {reason}\n"
    assert (outcome.code, outcome.err) == (3, expected)
    for kind, *command in (["DATA", "history", "list"], ["CACHE", "models", "pull", "smollm2-135m"]):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(place))
        outcome = termchat(*command)
        assert outcome.code == 1
        assert f"cannot create the folder {place}" in outcome.err
        assert outcome.err.endswith(f": {reason}\n")


@pytest.mark.parametrize(
    ("command", "out", "err"),
    [
        (["history", "list"], "ID  LAST USED  MESSAGES  MODEL  TITLE\n", "there are no conversations"),
        (["history", "list", "--json"], "[]\n", ""),
        (["history", "search", "x"], "ID  WRITTEN  BY  TEXT\n", "no message holds all these words"),
        (["history", "search", "x", "--json"], "[]\n", ""),
        (["history", "export", "-f", "text"], "", ""),
        (["history", "show", "x"], "", "there is no conversation 'x'"),
        (["models", "list"], None, ""),
        (["models", "verify"], None, ""),
        (["config", "show"], None, ""),
        (["themes", "list"], None, ""),
        (["doctor"], None, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_only_reads_needs_no_home_that_can_be_written(termchat, monkeypatch, command, out, err):
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", "/proc/termchat")  # where nobody makes a folder
    outcome = termchat(*command)
    assert outcome.code == (1 if "show" in command and "history" in command else 0)
    assert out is None or outcome.out == out
    assert outcome.err == (f"termchat: {err}\n" if err else "")


def test_the_model_in_a_folder_that_was_removed_is_a_sentence(termchat, home, monkeypatch):
    (home / "gone").mkdir()
    monkeypatch.chdir(home / "gone")
    (home / "gone").rmdir()
    outcome = termchat("-m", ".", "Hi")
    assert outcome.code == 3
    assert outcome.err == "termchat: there is no model file or folder .\n"


def test_history_of_a_damaged_database_is_one_line(termchat, home):
    (home / "data" / "termchat").mkdir(parents=True)
    (home / "data" / "termchat" / "termchat.db").write_bytes(b"no database" * 1000)
    outcome = termchat("history", "list")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "values", "written"),
    [
        ("model", ["qwen3-4b"], "qwen3-4b"),
        ("model", ["true"], "true"),
        ("model", ["ü 💡\t\x1b[31m\u2028"], "ü 💡\t\x1b[31m\u2028"),
        ("ui.ascii", ["true"], True),
        ("keys.help", ["ctrl+y"], "ctrl+y"),
        ("sampling.temperature", ["0"], 0.0),
        ("sampling.seed", ["-5"], -5),
        ("sampling.stop", ["###", "a b"], ["###", "a b"]),
        ("engine.kv_memory", ["2GiB"], 2 << 30),
        ("engine.kv_dtype", ["f16"], "f16"),
        ("engine.max_batch_tokens", ["77"], 77),
        ("engine.prefill_chunk", ["auto"], "auto"),
        ("engine.draft_tokens", ["3"], 3),
        ("engine.prefix_cache", ["false"], False),
    ],
)
def test_config_set_writes_one_setting_and_unset_takes_it_out(termchat, home, key, values, written):
    file = home / "config" / "termchat" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"# mine\r\n[ui]\r\npanel = 'off'  # no panel\r\n")
    outcome = termchat("config", "set", key, "--", *values)
    assert (outcome.code, outcome.err) == (0, "")
    content = tomllib.loads(file.read_bytes().decode())
    assert content["ui"]["panel"] == "off"
    table, _, name = key.rpartition(".")
    assert (content[table] if table else content)[name] == written
    assert b"# mine\r\n" in file.read_bytes()
    assert b"'off'  # no panel\r\n" in file.read_bytes()
    [found] = [each for each in json.loads(termchat("config", "show", "--json").out) if each["key"] == key]
    assert (found["value"], found["source"]) == (written, "config")
    outcome = termchat("config", "unset", key, "--json")
    assert json.loads(outcome.out)["source"] in ("default", None)
    assert name not in file.read_text()


def test_a_name_of_other_bytes_than_utf8_is_a_sentence_where_toml_cannot_hold_it(
    termchat, home, default_model
):
    odd = os.fsdecode(b"caf\xe9")
    (home / f"{odd}.gguf").symlink_to(default_model)
    outcome = termchat("models", "add", "mine", str(home / f"{odd}.gguf"))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1), outcome
    assert "cannot be edited: it cannot hold a name that is not UTF-8" in outcome.err
    assert "fault" not in outcome.err
    outcome = termchat("config", "set", f"keys.{odd}", "f5")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1), outcome
    assert "there is no such action" in outcome.err


def test_a_path_among_the_settings_holds_in_every_folder(termchat, home, default_model, monkeypatch):
    monkeypatch.chdir(home)
    (home / "small.gguf").symlink_to(default_model)
    (home / "t.jinja").write_text("{{ messages[0].content }}")
    for key, path in (
        ("engine.draft_model", "small.gguf"),
        ("model", "small.gguf"),
        ("engine.template", "t.jinja"),
    ):
        assert termchat("config", "set", key, path).code == 0
        (found,) = (s for s in json.loads(termchat("config", "show", "--json").out) if s["key"] == key)
        assert found["value"] == str(home / path)
    for key, name in (
        ("engine.draft_model", "ngram"),
        ("model", "smollm2-135m"),
        ("engine.template", "chatml"),
    ):
        assert termchat("config", "set", key, name).code == 0
        (found,) = (s for s in json.loads(termchat("config", "show", "--json").out) if s["key"] == key)
        assert found["value"] == name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nosuch", "1"], "there is no setting 'nosuch'; `termchat config show` lists all"),
        (["engine.quantisation", "int8"], "did you mean 'engine.quantization'?"),
        (["ui.ascii", "maybe"], "ui.ascii must be true or false, not 'maybe'"),
        (["ui.panel", "big"], "ui.panel must be one of full, mini, off"),
        (["sampling.temperature", "warm"], "sampling.temperature: 'warm' is not a valid number"),
        (["sampling.temperature", "nan"], "temperature must be in [0, inf), not nan"),
        (["sampling.seed", "9" * 5000], "seed"),
        (["engine.kv_memory", "9XB"], "engine.kv_memory: '9XB' is no size"),
        (["engine.threads", "0"], "threads must be an integer in [1, 1024]"),
        (["engine.threads", "1", "2"], "engine.threads takes one value"),
        (["engine.kv_dtype", "int3"], "kv_dtype must be one of"),
        (["model"], "Missing argument 'VALUE...'"),
        (["model", ""], "model must be a text that is not empty, not ''"),  # a script's variable is not set
        (["engine.template", ""], "template must be a name or the path of a file, not ''"),
        (["engine.draft_model", ""], "draft_model must be one of"),
        (["keys.chat.nww", "ctrl+x"], "keys.chat.nww: there is no such action; did you mean chat.new?"),
        (["keys.quit", "nope+x"], "keys.quit: there is no key 'nope+x'"),
        (["keys.quit", "x"], "keys.quit: x is needed for typing"),
        (["ui.theme", "papr"], "ui.theme: there is no theme 'papr'; did you mean 'paper'?"),
    ],
)
def test_config_set_refuses_what_cannot_hold(termchat, home, arguments, said):
    outcome = termchat("config", "set", *arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert said in outcome.err
    assert not (home / "config" / "termchat" / "config.toml").exists()


@pytest.mark.parametrize(
    ("setting", "option", "code"),
    [
        ('model = "nothere"', ["--model", "nothere"], 3),
        ('model = "qwen3-8b"', ["--model", "qwen3-8b"], 3),
        ('[engine]\ndevice = "cuda:77"', ["--device", "cuda:77"], 1),
        ("[engine]\ncontext_length = 9999999", ["--context-length", "9999999"], 1),
        ("[engine]\nkv_memory = 1", ["--kv-memory", "1"], 1),
    ],
)
def test_an_error_by_a_setting_names_the_setting_and_its_file(
    termchat, home, linked_model, setting, option, code
):
    """Nobody typed what is wrong; where an option went over it, the option is."""
    file = home / "config" / "termchat" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(setting)
    key = setting.partition(" =")[0].replace("[engine]\n", "engine.")
    outcome = termchat("Hi")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1), outcome
    assert outcome.err.endswith(f" ({key} in {file})\n")
    outcome = termchat(*option, "Hi")
    assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome
    assert str(file) not in outcome.err


def test_config(termchat, home):
    file = home / "config" / "termchat" / "config.toml"
    assert termchat("config", "path").out == f"{file}\n"
    assert json.loads(termchat("config", "path", "--json").out)["config"] == str(file)
    file.parent.mkdir(parents=True)
    file.write_text('log_level = "debug"\ntypo = 1\n[sampling]\ntemperature = 0.3\n')
    outcome = termchat("config", "show")
    assert "typo" in outcome.err
    assert outcome.err.count("\n") == 1
    rows = [row.split(maxsplit=3) for row in outcome.out.splitlines()]
    assert ["log_level", '"debug"', "config", "what the log file holds"] in rows
    temperature = next(row for row in rows if row[0] == "sampling.temperature")
    assert temperature[1:] == ["0.3", "config", SAMPLING["temperature"]]
    found = json.loads(termchat("config", "show", "--json").out)
    level = {"key": "log_level", "value": "debug", "source": "config", "help": "what the log file holds"}
    assert level in found


def test_themes_list(termchat, home):
    folder = home / "config" / "termchat" / "themes"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("name = 5")
    mine = '[colors]\nprimary = "#ff0000"\nforeground = "#ffffff"\nbackground = "#000000"\n'
    (folder / "mine.toml").write_text('name = "mine"\ndark = true\n' + mine)
    outcome = termchat("themes", "list")
    assert outcome.code == 0
    assert outcome.err.count("\n") == 1
    assert "broken.toml" in outcome.err
    assert ["mine", "dark", str(folder)] in [row.split() for row in outcome.out.splitlines()]
    found = {item["name"]: item for item in json.loads(termchat("themes", "list", "--json").out)}
    assert found["paper"] == {"name": "paper", "dark": False, "source": "termchat"}


def test_plan_reads_headers_only(termchat, linked_model, monkeypatch):
    monkeypatch.setattr("engine.core.load_model", lambda config: pytest.fail("loaded"))
    outcome = termchat("plan", "--kv-memory", "100MB", "--tokens", "1000", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    per_token = 2 * 30 * 3 * 64 * 2  # keys and values, layers, heads, width, bytes of a float16
    assert found["kv_bytes_per_token"] == per_token
    assert found["blocks"] == 100_000_000 // (32 * per_token)
    assert found["conversations"] == found["blocks"] // 32
    assert 90e6 < found["weight_bytes"] < 110e6
    assert found["context_length"] == 8192
    assert "conversations of 1024 tokens" in termchat("plan").out
    int8 = json.loads(termchat("plan", "--kv-memory", "100MB", "--kv-dtype", "int8", "--json").out)
    assert int8["kv_bytes_per_token"] == 2 * 30 * 3 * (64 + 4)  # and a float32 a head
    wrong = termchat("plan", "--kv-dtype", "int3")
    assert (wrong.code, "kv_dtype must be one of auto, float32" in wrong.err) == (2, True)


def test_a_plan_counts_the_draft_model(termchat, linked_model, default_model):
    alone = json.loads(termchat("plan", "--kv-memory", "100MB", "--json").out)
    options = ("plan", "--kv-memory", "100MB", "--draft", str(default_model), "--json")
    found = json.loads(termchat(*options).out)
    assert found["draft"]
    assert found["draft_weight_bytes"] == found["weight_bytes"] == alone["weight_bytes"]
    assert found["blocks"] == alone["blocks"] // 2
    assert found["conversation_bytes"] == 2 * alone["conversation_bytes"]
    options = (*options, "--gpu", "H100")
    there, two = (json.loads(termchat(*options, *more).out) for more in ((), ("--draft-tokens", "2")))
    assert there["draft_weight_bytes"] == there["weight_bytes"]
    # A model that guesses for itself saves no pass over the weights.
    gain, gain_of_two = (each["machines"][0]["faster"]["draft"] for each in (there, two))
    assert gain_of_two < gain < 1
    fewer = json.loads(termchat("plan", "--json", "--gpu", "H100", "--draft", "none").out)
    assert there["machines"][0]["conversations"] < 0.51 * fewer["machines"][0]["conversations"]
    refused = termchat("plan", "--params", "7B", "--draft", "ngram")
    assert (refused.code, "--draft needs a model that is there" in refused.err) == (2, True)


def test_a_plan_of_another_machine_asks_nothing_of_the_gpus_here(termchat, linked_model, gpus):
    gpus(FakeGpu())
    shared = ("--tensor-parallel", "3")
    assert "torch finds 1" in termchat("plan", *shared).err
    there = termchat("plan", "--gpu", "H100", *shared)
    assert (there.code, there.err) == (0, "")
    assert "H100: 80.0 GB" in there.out


def test_plan_and_engine_refuse_the_same_context(termchat, linked_model):
    plan, reply = termchat("plan", "--context-length", "8193"), termchat("--context-length", "8193", "Hi")
    assert plan.code == reply.code == 1
    assert plan.err == reply.err
    assert "context_length 8193 is more than the 8192 tokens" in plan.err
    found = json.loads(termchat("plan", "--context-length", "4096", "--json").out)
    assert found["context_length"] == 4096


def test_plan_of_a_broken_file_is_one_line(termchat, home):
    (home / "broken.gguf").write_bytes(b"<html>not a model</html>")
    outcome = termchat("plan", "-m", str(home / "broken.gguf"))
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "broken.gguf" in outcome.err


def test_doctor(termchat, scripted):
    scripted()
    outcome = termchat("doctor", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["model"] == "smollm2-135m"
    assert found["backend"] == "scripted"
    assert found["exact"] is True
    assert found["draft"] is None
    assert found["libraries"]["torch"]
    assert found["problems"] == []
    assert "all is well" in termchat("doctor").out


def test_doctor_counts_the_processors_that_compute_whatever_it_may_ask(termchat, scripted, monkeypatch):
    """A container's share of them is no affinity, and a sandbox refuses the question."""
    scripted()

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.sched_getaffinity", refuse, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 128)
    monkeypatch.setattr("kernels.machine.cgroup_cpus", lambda membership, root: 2.5)
    assert json.loads(termchat("doctor", "--json").out)["processors"] == 2


def test_N015_doctor_lists_every_card_with_the_reason_why_it_is_used_or_not(termchat, scripted, gpus):
    scripted()
    sick = FakeGpu("NVIDIA A30", "GPU-bbbb", fails="CUDA error: uncorrectable ECC error encountered", ecc=2)
    gpus(FakeGpu(), sick, FakeGpu("NVIDIA T4", "GPU-cccc", free=GB))
    outcome = termchat("doctor", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["libraries"]["driver"] == "580.65.06 (CUDA 13.0)"
    cards = {card["name"]: card for card in found["gpus"]}
    assert [card["used"] for card in cards.values()] == [True, False, False]
    assert cards["NVIDIA T4"]["mend"] == "--device cuda:2 takes this one"
    what = {problem["what"]: problem for problem in found["problems"]}
    assert "ECC" in what["the GPU NVIDIA A30 is not used"]["why"]
    assert "2 errors" in what["the memory of the GPU NVIDIA A30 is faulty"]["why"]
    assert len(what) == 2
    shown = termchat("doctor").out
    assert (
        "cuda:0 NVIDIA H200 GPU-aaaa1111-0000-0000-0000-000000000000, 70.0 GB of 80.0 GB free, used" in shown
    )
    assert "cuda:2 NVIDIA T4 GPU-cccc, 1.0 GB of 80.0 GB free, not used: cuda:0 computes; --device" in shown
    found = json.loads(termchat("doctor", "--json", "--device", "cpu").out)
    assert [(card["used"], card["wanted"]) for card in found["gpus"]] == [
        (False, True),
        (False, False),
        (False, True),
    ]


def test_N015_doctor_names_a_gpu_that_is_of_no_use(termchat, scripted, monkeypatch, gpus):
    scripted()
    gpus(FakeGpu(), build="None")
    monkeypatch.setattr("engine.testing.ScriptedRunner.backend", "native")
    outcome = termchat("doctor", "--json")
    assert outcome.code == 0
    [problem] = json.loads(outcome.out)["problems"]
    assert problem["what"] == "the GPU NVIDIA H200 is not used"
    assert problem["why"] == "the torch that is installed is built without CUDA"
    assert problem["mend"] == "install torch with CUDA, see pytorch.org"


def test_doctor_says_why_the_compiled_backend_does_not_compute(termchat, scripted, monkeypatch):
    scripted()
    monkeypatch.setattr("engine.testing.ScriptedRunner.backend", "reference")
    monkeypatch.setattr("kernels.native.unavailable_reason", lambda: "it was not built")
    [problem] = json.loads(termchat("doctor", "--json").out)["problems"]
    assert (problem["why"], "compiler" in problem["mend"]) == ("it was not built", True)


def test_doctor_says_what_is_wrong(termchat, home):
    (home / "data").write_text("a file where a folder should be")
    outcome = termchat("doctor", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["model"] is None
    assert [problem["what"] for problem in found["problems"]] == [
        "conversations are not saved",
        "no model was tried",
    ]
    assert all(problem["why"] and problem["mend"] for problem in found["problems"])


def test_doctor_fails_for_a_damaged_database(termchat, home):
    file = home / "data" / "termchat" / "termchat.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(range(256)) * 16)
    outcome = termchat("doctor", "--json")
    assert outcome.code == 1
    assert "is damaged or no database" in json.loads(outcome.out)["problems"][0]["why"]


def test_doctor_fails_for_a_broken_model(termchat, home):
    (home / "broken.gguf").write_bytes(b"")
    outcome = termchat("doctor", "-m", str(home / "broken.gguf"))
    assert outcome.code == 1
    assert "cannot be used" in outcome.out


def test_bench_json(termchat, scripted):
    scripted(*[[33] * 20] * 40)
    arguments = [
        "bench",
        "--concurrency",
        "4",
        "--prompt-tokens",
        "50",
        "--output-tokens",
        "10",
        "--requests",
        "6",
        "--json",
    ]
    outcome = termchat(*arguments)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert list(found) == BENCH
    assert (found["concurrency"], found["prompt_tokens"], found["output_tokens"]) == (4, 50, 10)
    for name in ("ttft_ms", "itl_ms", "e2e_ms"):
        assert list(found[name]) == ["mean", "p50", "p95", "p99"]
        assert 0 < found[name]["p50"] <= found[name]["p95"] <= found[name]["p99"]
    # by the definitions: 60 tokens and 6 requests within one span
    assert found["tps_system"] / found["rps"] == pytest.approx(10)
    assert found["bandwidth_peak_gbs"] is None


def test_bench_serves_the_load_exactly(termchat, scripted, monkeypatch):
    from engine import AsyncEngine

    seen = []
    generate = AsyncEngine.generate
    monkeypatch.setattr(
        AsyncEngine,
        "generate",
        lambda self, prompt, p, **k: seen.append((prompt, p)) or generate(self, prompt, p, **k),
    )
    scripted(*[[2, 0, 2, 0, 2, 0, 2, 0]] * 40)  # nothing but end tokens: they must not end the replies
    assert (
        termchat(
            *[
                "bench",
                "--concurrency",
                "2",
                "--prompt-tokens",
                "7",
                "--output-tokens",
                "5",
                "--requests",
                "5",
            ]
        ).code
        == 0
    )
    measured = seen[1:]  # the first warms up
    assert len(measured) == 5
    assert all(len(prompt) == 7 for prompt, _ in measured)
    assert len({tuple(prompt) for prompt, _ in seen}) == 6, "an equal prompt would be found in the cache"
    assert all(params.max_tokens == 5 and params.ignore_eos for _, params in measured)


@pytest.mark.parametrize("baseline", ["sequential", "static"])
def test_bench_baseline(termchat, scripted, baseline):
    scripted(*[[33] * 20] * 40)
    arguments = [
        "bench",
        "--concurrency",
        "3",
        "--prompt-tokens",
        "5",
        "--output-tokens",
        "8",
        "--requests",
        "6",
        "--json",
        "--baseline",
    ]
    found = json.loads(termchat(*arguments, baseline).out)
    assert list(found) == [*BENCH, "baseline"]
    assert list(found["baseline"]) == ["mode", *BENCH, "speedup"]
    assert found["baseline"]["concurrency"] == (1 if baseline == "sequential" else 3)
    expected = found["tps_system"] / found["baseline"]["tps_system"]
    assert found["baseline"]["speedup"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        # request 0 takes as long as three of the others
        ("continuous", "0+ 1+ 1- 2+ 2- 3+ 0- 3-"),
        ("static", "0+ 1+ 1- 0- 2+ 3+ 2- 3-"),
        ("sequential", "0+ 0- 1+ 1- 2+ 2- 3+ 3-"),
    ],
)
def test_bench_modes(monkeypatch, mode, order):
    from termchat.cli.bench import run as benchmark

    log = []

    async def reply(served, load, prompt):
        log.append(f"{prompt[0]}+")
        for _ in range(30 if prompt[0] == 0 else 12):
            await asyncio.sleep(0)
        log.append(f"{prompt[0]}-")
        return prompt[0]

    monkeypatch.setattr(benchmark, "_reply", reply)
    load = benchmark.Load(concurrency=2, prompt_tokens=1, output_tokens=1, requests=4)
    prompts = iter([[0], [1], [2], [3]])
    replies = asyncio.run(benchmark._serve(None, load, mode, prompts))
    assert sorted(replies) == [0, 1, 2, 3]
    assert log == order.split()


def test_bench_sweep(termchat, scripted):
    scripted(*[[33] * 20] * 80)
    arguments = [
        "bench",
        "--concurrency",
        "5",
        "--prompt-tokens",
        "5",
        "--output-tokens",
        "4",
        "--requests",
        "5",
        "--sweep",
    ]
    found = json.loads(termchat(*arguments, "--json").out)
    assert [item["concurrency"] for item in found] == [1, 2, 4, 5]
    plot = termchat(*arguments).out.splitlines()[-4:]
    assert [line.split()[0] for line in plot] == ["1", "2", "4", "5"]
    assert max(line.count("#") for line in plot) == 50


@pytest.mark.parametrize(("options", "code"), [("--prompt-tokens 60 --output-tokens 10", 4)])
def test_bench_refuses_a_load_that_does_not_fit(termchat, scripted, options, code):
    scripted([33] * 20, context=64)
    outcome = termchat("bench", *options.split())
    assert outcome.code == code
    assert "60 + 10 tokens are 70, but the context" in outcome.err


def test_bench_stops_when_the_cache_is_too_small(termchat, scripted):
    scripted(*[[33] * 200] * 10, blocks=3)
    outcome = termchat(
        *shlex.split("bench --concurrency 1 --prompt-tokens 60 --output-tokens 100 --requests 1")
    )
    assert outcome.code == 1
    assert "--kv-memory" in outcome.err
    assert outcome.err.count("Traceback") == 0


def test_plan_answers_which_machine_and_how_fast(termchat, linked_model):
    asked = ("plan", "--context", "1000", "--concurrency", "64")
    here = termchat(*asked)
    assert here.code == 0, here.err
    assert "conversations of 1000 tokens fit at once" in here.out
    assert "tokens/s for one conversation" in here.out
    assert "for 64 together" in here.out
    assert "decode, 64 conversations" in here.out
    h100 = termchat(*asked, "--gpu", "h100")
    assert "64 conversations of 1000 tokens fit; there is room for" in h100.out
    assert "NVIDIA H100 Tensor Core GPU data sheet" in h100.out
    every = termchat(*asked, "--gpu", "all")
    assert (
        "the smallest of these GPUs that holds 64 conversations of 1000 tokens is the RTX 4080" in every.out
    )
    found = json.loads(termchat(*asked, "--gpu", "all", "--json").out)
    assert len(found["machines"]) >= 20
    assert all(machine["source"] for machine in found["machines"])
    assert found["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 2
    (one,) = json.loads(termchat(*asked, "--gpu", "H200", "--json").out)["machines"]
    assert one["single_tps"] < one["batch_tps"]
    assert [point["what"].partition(" ")[0] for point in one["points"]] == ["decode,", "decode,", "prefill"]


def test_plan_without_a_model(termchat, home):
    found = json.loads(termchat("plan", "--params", "7B", "--gpu", "h100", "--context", "4096", "--json").out)
    assert found["conversation_bytes"] == 2_147_483_648
    assert found["weight_bytes"] == pytest.approx(14e9, rel=0.001)
    assert "Llama 2 7B" in found["assumed"]
    for words in ("7b", "7000M", "7e9", "7000000000", "0.007T"):
        again = json.loads(
            termchat("plan", "--params", words, "--gpu", "h100", "--context", "4096", "--json").out
        )
        assert again["weight_bytes"] == found["weight_bytes"]
    huge = termchat("plan", "--params", "9T", "--gpu", "all", "--concurrency", "1000000")
    assert "not even eight of any of these GPUs hold 1000000 conversations" in huge.out
    small = termchat("plan", "--params", "1b", "--quantize", "int4", "--kv-dtype", "int8", "--gpu", "l4")
    assert (small.code, "(int4)" in small.out) == (0, True)
    assert termchat("plan", "--params", "350M").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--params", "7B", "--context", "32k"], "'32k' is not a valid whole number"),
        (["--params", "7B", "--gpu", "RTX 3090 Ti"], "is not known; like it are RTX 3090"),
        (["--params", "many"], "'many' is no number of parameters"),
        (["--params", "0"], "must be in [1M, 10T]"),
        (["--params", "-3B"], "no number of parameters"),
        (["--params", "1e99"], "must be in [1M, 10T]"),
        (["--params", "9" * 400], "no number of parameters"),
        (["--params", "7B", "-m", "x"], "--params and --model exclude each other"),
        (["--params", "7B", "--gpu", "a100"], "may be A100 80GB"),
        (["--params", "7B", "--gpu", ""], "known are"),
        (["--params", "7B", "--context", "0"], "not in the range"),
        (["--params", "7B", "--concurrency", "-1"], "not in the range"),
        (["--params", "7B", "--quantize", "int3"], "quantization must be one of"),
        (["--params", "7B", "--kv-dtype", "int3"], "kv_dtype must be one of"),
    ],
)
def test_plan_refuses_nonsense_in_one_line(termchat, home, arguments, words):
    outcome = termchat("plan", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


def test_config_set_keeps_the_whole_path_of_a_file_here(termchat, home, monkeypatch, tmp_path):
    """The setting holds in every folder; names stay names."""
    monkeypatch.chdir(tmp_path)
    for name in ("own.gguf", "form.jinja", "smollm2-135m", "chatml"):
        (tmp_path / name).write_text("{{ messages }}")
    for key, value, written in (
        ("model", "own.gguf", str(tmp_path / "own.gguf")),
        ("model", "./smollm2-135m", str(tmp_path / "smollm2-135m")),
        ("model", "smollm2-135m", "smollm2-135m"),
        ("model", "elsewhere.gguf", "elsewhere.gguf"),
        ("engine.draft_model", "own.gguf", str(tmp_path / "own.gguf")),
        ("engine.draft_model", "none", "none"),
        ("engine.template", "form.jinja", str(tmp_path / "form.jinja")),
        ("engine.template", "chatml", "chatml"),
        ("ui.theme", "paper", "paper"),
    ):
        outcome = termchat("config", "set", key, value, "--json")
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)["value"] == written
    os.mkfifo("pipe")
    outcome = termchat("config", "set", "engine.template", "pipe")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "termchat: engine.template: pipe can be read only once; name a file that stays\n"
