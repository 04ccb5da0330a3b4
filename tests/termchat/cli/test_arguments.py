"""What the arguments mean: commands, prompts, options, help."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest

from termchat.cli.commands import PROMPT_COMMAND
from termchat.cli.completions import complete_conversation
from termchat.cli.main import program
from termchat.cli.prompt import prompt
from termchat.cli.request import Request


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["Hello"], "Hello"),
        (["model"], "model"),
        (["Models"], "Models"),
        (["models please"], "models please"),
        (["--", "models"], "models"),
        (["--", "--json"], "--json"),
        (["-t", "0", "models"], "models"),
        (["-m", "x", "history"], "history"),
        (["Hello", "-t", "0"], "Hello"),
        (["-t", "0", "--", "-n"], "-n"),
        (["--raw", "doctor"], "doctor"),
    ],
)
def test_an_argument_is_a_command_only_if_it_is_the_first_and_equals_one(termchat, requests, arguments, text):
    outcome = termchat(*arguments)
    assert outcome.code == 0, outcome.err
    assert [request.text for request in requests] == [text]


def test_the_first_argument_can_be_a_command(termchat, requests):
    outcome = termchat("models", "list")
    assert outcome.code == 0
    assert requests == []
    assert "smollm2-135m" in outcome.out


def test_options_become_fields(termchat, requests):
    outcome = termchat(
        *[
            "-m",
            "M",
            "-s",
            "S",
            "-t",
            "0.5",
            "--top-k",
            "5",
            "--top-p",
            "0.9",
            "--min-p",
            "0.1",
            "--repetition-penalty",
            "1.1",
        ],
        *[
            "--presence-penalty",
            "0.2",
            "--frequency-penalty",
            "0.3",
            "--seed",
            "-7",
            "-n",
            "9",
            "--stop",
            "a",
            "--stop",
            "b",
        ],
        *[
            "--jsonl",
            "--no-stream",
            "--stats",
            "--cid",
            "x",
            "-y",
            "--quantize",
            "none",
            "--backend",
            "reference",
            "--device",
            "cpu",
        ],
        *["--threads", "2", "--context-length", "100", "--kv-memory", "1.5MiB", "--kv-dtype", "f16"],
        *["--template", "chatml", "--draft", "ngram", "--draft-tokens", "4"],
        "Hi",
    )
    assert outcome.code == 0, outcome.err
    sampling = {
        "temperature": 0.5,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "seed": -7,
        "max_tokens": 9,
        "stop": ("a", "b"),
    }
    engine = {
        "quantization": "none",
        "backend": "reference",
        "device": "cpu",
        "threads": 2,
        "context_length": 100,
        "kv_memory": 1536 * 1024,
        "kv_dtype": "f16",
        "draft_model": "ngram",
        "draft_tokens": 4,
        "template": "chatml",
    }
    assert requests == [
        Request(
            "Hi",
            model="M",
            yes=True,
            system="S",
            sampling=sampling,
            engine=engine,
            form="jsonl",
            stream=False,
            stats=True,
            conversation="x",
        )
    ]


def test_what_is_not_given_is_not_set(termchat, requests):
    termchat("Hi")
    assert requests == [Request("Hi")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nonsense", "Hi"], "No such option '--nonsense'"),
        (["Hi", "there"], "extra argument"),
        (["-t", "warm", "Hi"], "'warm' is not a valid number"),
        (["-t", "0,5", "Hi"], "'0,5' is not a valid number; decimals follow a point: 0.5"),
        (["-t"], "requires an argument"),
        (["--json", "--jsonl", "Hi"], "--json and --jsonl exclude each other"),
        (["-c", "--no-save", "Hi"], "-c and --no-save exclude each other"),
        (["--cid", "x", "-c", "Hi"], "exclude each other"),
        (["--raw", "-s", "x", "Hi"], "--raw and --system exclude each other"),
        (["--raw", "--template", "chatml", "Hi"], "--raw and --template exclude each other"),
        (["batch", "x", "--raw", "--template", "chatml"], "--raw and --template exclude each other"),
        (["plan", "a model.gguf"], "name the model by --model: termchat plan -m 'a model.gguf'"),
        (["--kv-memory", "much", "Hi"], "is no size"),
        (["models", "nonsense"], "models has no command 'nonsense'; known are 'list', 'pull', "),
        (["models", "lst"], "models has no command 'lst'; did you mean 'list'? (termchat models --help"),
        (["models", "remove", "x"], "models has no command 'remove'; did you mean 'rm'? (termchat models"),
        (["history", "ls"], "history has no command 'ls'; did you mean 'list'?"),
        (["config", "remove", "x"], "config has no command 'remove'; known are 'path', "),
        (["pull", "llama3"], "extra argument (llama3); did you mean termchat models pull? (termchat --help"),
        (["run", "llama3"], "did you mean termchat -m NAME?"),
        (["model", "list"], "extra argument (list); did you mean termchat models? (termchat --help"),
        (["--max", "5", "Hi"], "No such option '--max' (did you mean --max-tokens?); a text that begins"),
        (["batch", "x", "--conc", "5"], "No such option '--conc' (did you mean --concurrency?) (termchat"),
        (["--no-json", "Hi"], "No such option '--no-json' (did you mean --json or --jsonl"),
        (["--template", "none.jinja", "Hi"], "'--template': the chat template none.jinja does not exist"),
        (["--template", "/", "Hi"], "'--template': the chat template /: "),
        (["batch"], "Missing argument 'IN.jsonl' (termchat batch --help lists everything)"),
        (["models"], "models needs a command: list, pull, show, add, rm, forget, verify, quantize (termchat"),
        (["completion"], "Choose from: bash, zsh, fish (termchat completion --help"),
        (["bench", "--concurrency", "0"], "0 is not in the range"),
        (["models", "x" * 5000], "models has no command 'xxx"),
        (["--" + "x" * 5000], "No such option '--xxx"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(termchat, requests, arguments, said):
    outcome = termchat(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("termchat: ")
    assert len(outcome.err) < 600
    assert requests == []


def test_a_message_that_is_a_command_elsewhere_is_sent_with_a_note(termchat, requests):
    outcome = termchat("ls")
    assert requests == [Request("ls")]
    assert outcome.err == "termchat: 'ls' is the message to the model; did you mean termchat models list?\n"
    assert termchat("ls", stdin=b"a\n").err == ""  # a text comes with it


@pytest.mark.parametrize(
    ("option", "value", "field"),
    [
        ("-t", "-1", "temperature"),
        ("-t", "nan", "temperature"),
        ("--top-p", "1.5", "top_p"),
        ("--top-k", "-1", "top_k"),
        ("--min-p", "-1", "min_p"),
        ("--repetition-penalty", "0", "repetition_penalty"),
        ("--presence-penalty", "101", "presence_penalty"),
        ("--frequency-penalty", "-101", "frequency_penalty"),
        ("--seed", str(2**64), "seed"),
        ("-n", "0", "max_tokens"),
        ("--stop", "", "stop"),
        ("--threads", "0", "threads"),
        ("--backend", "abacus", "backend"),
        ("--device", "toaster", "device"),
        ("--quantize", "int3", "quantization"),
        ("--context-length", "1", "context_length"),
        ("--kv-memory", "0", "kv_memory"),
    ],
)
def test_B053_B055_values_out_of_range_are_refused_before_a_model_is_loaded(
    termchat, linked_model, option, value, field
):
    outcome = termchat(option, value, "Hi")
    assert outcome.code == 2
    assert outcome.out == ""
    assert field in outcome.err
    assert outcome.err.count("\n") == 1


def every_command(command=program, path=()):
    yield (*path,), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in every_command()], ids=" ".join)
def test_every_command_has_help_that_lists_its_options(termchat, path):
    outcome = termchat(*path, "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    command = dict(every_command())[path] if path else prompt
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help"
            assert all(name in outcome.out for name in parameter.opts)
    for name in getattr(command, "commands", {}):
        assert name in outcome.out
    assert PROMPT_COMMAND not in outcome.out


def test_no_option_is_in_the_help_that_has_no_effect(requests, termchat):
    """Every option of a prompt changes what is asked for."""
    values = {
        "model": "m",
        "system": "s",
        "cid": "c",
        "kv_memory": "1MB",
        "stop": "x",
        "backend": "reference",
    }
    values |= {
        "template": "chatml",
        "quantization": "none",
        "device": "cpu",
        "schema": "list",
        "grammar": "start: /a/",
    }
    ignored = []
    for option in prompt.params:
        if not isinstance(option, click.Option) or option.is_eager or option.name == "plain":
            continue  # --plain is for a chat, and refused with a prompt
        flag = [] if option.is_flag else [values.get(option.name or "", "1")]
        json = option.name == "logprobs"  # is only shown there
        before = len(requests)
        outcome = termchat(option.opts[-1], *flag, *["--json"] * json, "Hi")
        assert outcome.code == 0, outcome.err
        assert len(requests) == before + 1
        if requests[-1] == Request("Hi", form="json" if json else "plain"):
            ignored.append(option.opts)
    assert ignored == []


def test_version(termchat):
    outcome = termchat("--version")
    assert outcome.code == 0
    assert re.fullmatch(r"termchat \d+\.\d+\.\d+\n", outcome.out)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["models", "list"], ["history", "list", "--json"], ["config", "show"]]
)
def test_light_commands_import_no_heavy_library(arguments, home):
    script = (
        "import sys; from termchat.__main__ import main; sys.argv[1:] = sys.argv[1:]; code = main();"
        "heavy = {'torch', 'textual', 'tokenizers', 'numpy', 'engine.client'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("termchat mod", "models"),
        ("termchat --js", "--json"),
        ("termchat models pu", "pull"),
        ("termchat models pull smollm2-1", "smollm2-135m"),
        ("termchat -m smollm2-1", "smollm2-135m"),
        ("termchat history ex", "export"),
        ("termchat --quantize i", "int4"),
        ("termchat batch --kv-dtype i", "int8"),
        ("termchat --backend n", "native"),
        ("termchat --template gem", "gemma4"),
    ],
)
def test_the_shell_completes(words, expected, home):
    parts = words.split()
    done = subprocess.run(
        [sys.executable, "-m", "termchat"],
        env={
            **os.environ,
            "_TERMCHAT_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(parts) - 1),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert f"plain,{expected}" in done.stdout.split()


def test_files_are_completed_where_files_can_be_named(home):
    def files(parameter):
        found = parameter.shell_complete(click.Context(prompt, resilient_parsing=True), "no-such-na")
        return [item.value for item in found if item.type == "file"]

    named = {
        (*path, parameter.name)
        for path, command in [*every_command(), ((), prompt)]
        for parameter in command.params
        if re.search("FILE|PATH|DIR|jsonl|MODEL", parameter.metavar or "")
        or parameter.name in ("schema", "grammar")
    }
    commands = {**dict(every_command()), (): prompt}
    for *path, name in named:
        found = {parameter.name: files(parameter) for parameter in commands[(*path,)].params}
        assert found[name] == ["no-such-na"], (path, name)
        assert "regex" not in found or found["regex"] == []
    assert {("batch", "source"), ("batch", "output"), ("schema",), ("models", "quantize", "output")} < named


def test_to_complete_creates_nothing(home):
    found = complete_conversation(click.Context(prompt), prompt.params[0], "")
    assert found == []
    assert not (home / "data").exists()


def test_what_cannot_be_completed_leaves_the_line_that_is_typed_alone(home):
    (home / "data" / "termchat" / "termchat.db").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "termchat"],
        env={
            **os.environ,
            "_TERMCHAT_COMPLETE": "bash_complete",
            "COMP_WORDS": "termchat history show ",
            "COMP_CWORD": "3",
        },
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(termchat, shell):
    outcome = termchat("completion", shell)
    assert outcome.code == 0
    assert "_TERMCHAT_COMPLETE" in outcome.out


def test_plain_is_refused_with_a_prompt(termchat):
    outcome = termchat("--plain", "Hi")
    assert outcome.code == 2
    assert "--plain is for a chat" in outcome.err


def test_the_librarys_own_switches_do_not_count():
    code = (
        "import os, termchat.cli.main as cli; from termchat.__main__ import main;"
        "cli.run = lambda args: print([name for name in os.environ if name.startswith('TEXTUAL')]); main()"
    )
    given = {**os.environ, "TEXTUAL_COLOR_SYSTEM": "nonsense", "TEXTUAL_LOG": "/nosuch/x"}
    assert subprocess.run([sys.executable, "-c", code], env=given, capture_output=True).stdout == b"[]\n"


def test_errors_that_python_ignores_are_not_printed():
    """A signal while an event loop is being made, for example, leaves one that cannot be closed."""
    code = (
        "import sys; from termchat.__main__ import main; sys.argv[1:] = ['--version']; main()\n"
        "class Half:\n    def __del__(self): raise AttributeError('_debug')\n"
        "Half(); sys.exit(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")


def test_a_prompt_without_quotes_is_told_how(termchat):
    refused = termchat("Why", "is", "the", "sky", "blue?")
    assert (refused.code, refused.out) == (2, "")
    assert "a text of several words is one argument, in quotes: termchat 'TWO WORDS'" in refused.err
