"""Batches: lines checked one by one, all answered together, reruns, crashes, bounded memory."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from itertools import count

import pytest

from engine.testing import ScriptedRunner
from termchat.cli.batch.lines import BadLine, Job, parse_line, read_lines
from termchat.cli.batch.results import ResultFile, finished
from termchat.cli.console import Console
from termchat.cli.errors import CliError
from termchat.cli.main import run
from termchat.cli.output import Messages, Output


def lines(*items):
    return "".join(json.dumps(item) + "\n" for item in items).encode()


def results(text):
    return {record["index"]: record for record in map(json.loads, text.splitlines())}


def test_all_lines_are_answered(termchat, scripted, tmp_path):
    scripted("One.", "Two.", "Three.")
    (tmp_path / "in.jsonl").write_bytes(
        lines(
            {"prompt": "a"},
            {"id": "b", "messages": [{"role": "user", "content": "b"}]},
            {"id": 7, "prompt": "c", "seed": 5, "max_tokens": 100},
        )
    )
    outcome = termchat("batch", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"))
    assert outcome.code == 0, outcome.err
    assert outcome.out == ""
    found = results((tmp_path / "out.jsonl").read_text())
    assert [found[index]["id"] for index in range(3)] == [0, "b", 7]
    assert sorted(found[index]["text"] for index in range(3)) == ["One.", "Three.", "Two."]
    assert list(found[0]) == [
        "index",
        "id",
        "conversation",
        "model",
        "text",
        "thinking",
        "finish_reason",
        "seed",
        "usage",
        "metrics",
        "line",
    ]
    assert found[2]["seed"] == 5
    assert "3 answered, 0 failed" in outcome.err


def test_bad_lines_get_their_own_errors_and_the_others_go_on(termchat, scripted, tmp_path):
    scripted("One.", "Two.")
    bad = [
        b"no json\n",
        b"[1]\n",
        b"1\n",
        b'{"prompt": "x", "temprature": 1}\n',
        b'{"prompt": "x", "temperature": -1}\n',
        b'{"prompt": "x", "temperature": NaN}\n',
        b'{"prompt": " "}\n',
        b'{"id": "named", "prompt": 5}\n',
        b'{"prompt": "x", "messages": []}\n',
        b'{"messages": [{"role": "wizard", "content": "x"}]}\n',
        b'{"id": {}, "prompt": "x"}\n',
        b'{"prompt": "caf\xe9"}\n',
        b"\x1f\x8b\x08\x00\xff\xff\n",
        b'{"prompt": "\\ud800"}\n',
        b'{"prompt": "x", "logprobs": 21}\n',
        b'{"prompt": "x", "stop": [1]}\n',
        b"[" * 100_000 + b"\n",
        b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}\n",
        b'{"prompt": "x", "prompt": "y"}\n',
        b'{"messages": [{"role": "user", "content": "x", "content": "y"}]}\n',
    ]
    data = lines({"prompt": "a"}) + b"\n" + b"".join(bad) + lines({"prompt": "b"})
    outcome = termchat("batch", "-", stdin=data)
    assert outcome.code == 1, outcome.err
    found = results(outcome.out)
    assert sorted(found) == [0, *range(2, 2 + len(bad) + 1)]  # the blank line 1 is no line
    assert sorted((found[0]["text"], found[2 + len(bad)]["text"])) == ["One.", "Two."]
    said = [
        "no JSON",
        "is a list; write each object of it on a line of its own",
        "JSON object",
        "'temprature'; did you mean 'temperature'",
        "temperature must be in [0, inf), not -1",
        "NaN",
        "empty",
        "prompt must be a text",
        "either a prompt or messages",
        "messages[0].role",
        "id must be",
        "byte offset 15",
        "is no text but a gzip archive; unpack it first",
        "surrogate",
        "logprobs must be in [0, 20], not 21",
        "stop",
        "nested too deeply",
        "a number of 5000 digits",
        "two values of 'prompt' in one object",
        "two values of 'content' in one object",
    ]
    for index, words in enumerate(said, start=2):
        record = found[index]
        assert list(record) == ["index", "id", "error"]
        assert list(record["error"]) == ["code", "message"]
        assert words in record["error"]["message"], record
        assert record["id"] == ("named" if "be a text" in words else index)
    assert f"2 answered, {len(bad)} failed" in outcome.err


def test_log_probabilities_of_lines_that_ask_for_them(termchat, scripted):
    scripted("One.", "One.", "One.")
    data = lines({"prompt": "a"}, {"prompt": "b", "logprobs": 3}, {"prompt": "c", "logprobs": None})
    for arguments, wanted in (((), (None, 3, None)), (("--logprobs", "1"), (1, 3, 1))):
        outcome = termchat("batch", "-", *arguments, stdin=data)
        assert outcome.code == 0, outcome.err
        for index, record in results(outcome.out).items():
            top = [len(entry["top"]) for entry in record.get("logprobs", [])]
            assert top == [wanted[index]] * record["usage"]["completion_tokens"] * (wanted[index] is not None)


def test_an_id_belongs_to_one_line(termchat, scripted, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(
        lines(
            {"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}, {"id": 3, "prompt": "x"}, {"prompt": "y"}
        )
        + lines({"id": "3", "prompt": "x"}, {"id": "b", "prompt": 5}, {"id": "b", "prompt": "x"})
    )
    for answered, skipped in ((3, ""), (0, ", 3 skipped")):
        scripted("One.", "Two.", "Three.")
        outcome = termchat("batch", str(source), "-o", str(target))
        assert outcome.code == 1
        assert f"{answered} answered, 4 failed{skipped}" in outcome.err
        found = results(target.read_text())
        assert [found[index]["id"] for index in range(7)] == ["a", None, 3, None, "3", "b", None]
        assert all("text" in found[index] for index in (0, 2, 4))
        for index, id in ((1, "'a'"), (3, "3"), (6, "'b'")):
            message = f"an earlier line has the id {id}; give each line one of its own"
            assert found[index]["error"] == {"code": "invalid_request", "message": message}


def test_what_the_engine_refuses_is_that_lines_error(termchat, scripted):
    scripted("One.", "Two.", context=64)
    outcome = termchat("batch", "-", stdin=lines({"prompt": "a"}, {"prompt": "word " * 100}, {"prompt": "b"}))
    assert outcome.code == 1
    assert "2 answered, 1 failed" in outcome.err
    found = results(outcome.out)
    assert found[1]["error"]["code"] == "prompt_too_long"
    assert "text" in found[0]
    assert "text" in found[2]


def test_options_are_defaults_that_lines_override(termchat, scripted, monkeypatch):
    from engine import AsyncEngine

    seen = []
    generate = AsyncEngine.generate

    def spy(self, prompt, params, **more):
        seen.append((prompt, params))
        return generate(self, prompt, params, **more)

    monkeypatch.setattr(AsyncEngine, "generate", spy)
    scripted("One.", "Two.")
    data = lines(
        {"prompt": "a", "temperature": 0.5, "logit_bias": {"7": -1.5}},
        {"messages": [{"role": "system", "content": "own"}, {"role": "user", "content": "b"}]},
    )
    assert termchat("batch", "-t", "0", "-n", "9", "-s", "shared", "-", stdin=data).code == 0
    (first, first_params), (second, second_params) = sorted(seen, key=lambda item: item[0][-1].content)
    assert [(message.role, message.content) for message in first] == [("system", "shared"), ("user", "a")]
    assert [(message.role, message.content) for message in second] == [("system", "own"), ("user", "b")]
    assert (first_params.temperature, first_params.max_tokens) == (0.5, 9)
    assert first_params.logit_bias == {7: -1.5}
    assert (second_params.temperature, second_params.max_tokens) == (0, 9)


def test_a_rerun_answers_what_is_missing_or_failed(termchat, scripted, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(*({"id": f"n{number}", "prompt": "x"} for number in range(5))))
    done = {"index": 1, "id": "n1", "text": "done before"}
    failed = {"index": 2, "id": "n2", "error": {"code": "queue_full", "message": "m"}}
    torn = b'{"index": 3, "id": "n3", "text": "half'
    target.write_bytes(lines(done, failed) + b"foreign line\n" + torn)
    scripted("a", "b", "c", "d")
    outcome = termchat("batch", str(source), "-o", str(target))
    assert outcome.code == 0, outcome.err
    assert "4 answered, 0 failed, 1 skipped" in outcome.err
    written = target.read_text().splitlines()
    assert written[:3] == [json.dumps(done), json.dumps(failed), "foreign line"]
    assert sorted(json.loads(line)["id"] for line in written[3:]) == ["n0", "n2", "n3", "n4"]
    before = target.read_bytes()
    assert termchat("batch", str(source), "-o", str(target)).code == 0
    assert target.read_bytes() == before


def test_ids_of_different_types_are_different(tmp_path):
    (tmp_path / "out.jsonl").write_bytes(
        lines({"index": 0, "id": 1, "text": ""}, {"index": 1, "id": "2", "text": ""})
    )
    assert finished(tmp_path / "out.jsonl").keys() == {"1", '"2"'}


def test_thinking_is_divided(termchat, scripted):
    scripted("<think>hm</think>Yes.")
    record = json.loads(termchat("batch", "-", stdin=lines({"prompt": "a"})).out)
    assert (record["text"], record["thinking"]) == ("Yes.", "hm")


def test_a_torn_line_longer_than_a_block_is_removed(tmp_path):
    path = tmp_path / "out.jsonl"
    for torn in (b'{"index": 7, "text": "' + b"x" * 200_000, b'{"inde', bytes(200_000)):
        path.write_bytes(b'{"id": 1}\n' + torn)
        ResultFile(path).close()
        assert path.read_bytes() == b'{"id": 1}\n'
        path.write_bytes(torn)
        ResultFile(path).close()
        assert path.read_bytes() == b""


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path):
    path = tmp_path / "out.jsonl"
    whole = b'{"index": 0, "id": 0, "text": "' + b"x" * 200_000 + b'"}'
    for before in (b"", b'{"index": 1}\n'):
        path.write_bytes(before + whole)
        results = ResultFile(path)
        assert results.done == {"0": None}
        results.append('{"index": 2}')
        results.close()
        assert path.read_bytes() == before + whole + b'\n{"index": 2}\n'


def test_a_file_that_holds_something_else_is_no_output_and_stays_as_it_is(termchat, scripted, tmp_path):
    source, notes = tmp_path / "in.jsonl", tmp_path / "notes.md"
    source.write_bytes(lines({"prompt": "a"}))
    for text in ("my notes", "two lines\nand no line end", '{"text": 1}'):
        notes.write_text(text)
        outcome = termchat("batch", str(source), "-o", str(notes))
        assert outcome.code == 1
        assert f"{notes} ends in what is no result of a batch, and stays as it is" in outcome.err
        assert notes.read_text() == text


def test_a_rerun_answers_lines_that_are_others_now(termchat, scripted, tmp_path):
    """A line put in front of the others moves the numbers of those without an id of their own."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"

    def run(*prompts: str) -> dict[int, str]:
        source.write_bytes(lines(*({"prompt": prompt} for prompt in prompts)))
        outcome = termchat("batch", str(source), "-o", str(target))
        assert outcome.code == 0, outcome.err
        notes.append(outcome.err)
        results = map(json.loads, target.read_text().splitlines())
        return {result["index"]: result["text"] for result in results}

    notes: list[str] = []
    scripted("one", "one")
    assert run("a", "b") == {0: "one", 1: "one"}
    scripted("two", "two", "two")
    assert run("a", "b") == {0: "one", 1: "one"}
    assert "2 skipped" in notes[-1]
    assert run("new", "a", "b") == {0: "two", 1: "two", 2: "two"}
    assert "3 answered, 0 failed, 2 anew as the line is another one now" in notes[-1]


@pytest.mark.parametrize("named", ["{file}", "-"])
def test_the_input_is_never_the_output_and_stays_as_it_is(termchat, tmp_path, named):
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'{"prompt": "a"}\n{"prompt": "b"}')
    with file.open("rb") as lines_in, (tmp_path / "err").open("w+b") as err:
        console = Console(Output(), Messages(err.fileno()), stdin=lines_in.fileno())
        assert run(["batch", named.format(file=file), "-o", str(file)], console) == 2
        err.seek(0)
        assert b"both input and output" in err.read()
    assert file.read_bytes() == b'{"prompt": "a"}\n{"prompt": "b"}'


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{tmp}/missing.jsonl"], 2, "cannot read"),
        (["{tmp}"], 2, "cannot read"),
        (["{tmp}/in.jsonl", "-o", "{tmp}/in.jsonl"], 2, "both input and output"),
        (["{tmp}/in.jsonl", "-o", "{tmp}/no/out.jsonl"], 1, "cannot write"),
        (["{tmp}/in.jsonl", "-o", "/dev/full"], 1, "No space left"),
        (["{tmp}/in.jsonl", "-t", "-1"], 2, "temperature"),
    ],
)
def test_what_stops_the_whole_batch_is_one_line(termchat, scripted, tmp_path, arguments, code, said):
    scripted("One.")
    (tmp_path / "in.jsonl").write_bytes(lines({"prompt": "a"}))
    outcome = termchat("batch", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert outcome.code == code
    assert outcome.out == ""
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert (tmp_path / "in.jsonl").read_bytes() == lines({"prompt": "a"})


def test_two_batches_do_not_write_one_file(tmp_path):
    first = ResultFile(tmp_path / "out.jsonl")
    with pytest.raises(CliError, match="another batch is writing"):
        ResultFile(tmp_path / "out.jsonl")
    first.close()
    ResultFile(tmp_path / "out.jsonl").close()


def test_a_failing_engine_stops_the_batch(termchat, scripted, monkeypatch):
    from engine.testing import ScriptedRunner

    def broken(self, plan, **how):
        raise ZeroDivisionError("the machine is on fire")

    scripted("One.")
    monkeypatch.setattr(ScriptedRunner, "launch", broken)
    outcome = termchat("batch", "-", stdin=lines(*[{"prompt": "a"}] * 50))
    assert outcome.code == 1
    assert "the machine is on fire" in outcome.err
    assert outcome.out == ""


class EndlessLines(io.RawIOBase):
    """Numbered prompts without end; counts how many have been taken."""

    def __init__(self, limit=None):
        super().__init__()
        self.taken = 0
        self._limit = limit
        self._numbers = count()

    def readable(self):
        return True

    def readline(self, size=-1):
        if self.taken == self._limit:
            return b""
        self.taken += 1
        return lines({"prompt": f"n{next(self._numbers)}"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lines_are_read_as_needed_and_a_signal_keeps_what_is_done(scripted, tmp_path, monkeypatch, number):
    scripted(*(["word " * 3] * 5000), step_seconds=0.002)
    source = EndlessLines()
    monkeypatch.setattr("termchat.cli.batch.run._open", lambda *_: source)
    target = tmp_path / "out.jsonl"
    ahead = []

    def watch_and_stop():
        while not target.exists() or target.read_bytes().count(b"\n") < 20:
            stop.wait(0.01)
        ahead.append(source.taken - target.read_bytes().count(b"\n"))
        os.kill(os.getpid(), number)

    stop = threading.Event()
    watcher = threading.Thread(target=watch_and_stop)
    watcher.start()
    with open("/dev/null", "r+b") as null:
        console = Console(Output(null.fileno()), Messages(null.fileno()), stdin=null.fileno())
        code = run(["batch", "ignored", "-o", str(target), "--concurrency", "4"], console)
    watcher.join()
    assert code == 128 + number
    assert ahead[0] <= 2 * 4 + 2, "lines in flight, one waiting, one being parsed"
    assert all("text" in json.loads(line) for line in target.read_text().splitlines())


def test_requests_share_the_batch(scripted, monkeypatch, termchat):
    """As many conversations as asked for are in one step, and no more."""
    rows = []
    whole = ScriptedRunner.launch

    def spy(self, plan, **how):
        rows.append(len(plan.runs))
        return whole(self, plan, **how)

    monkeypatch.setattr(ScriptedRunner, "launch", spy)
    scripted(*["a b c d e f g h i j k l m n o p"] * 12, step_seconds=0.005)
    assert termchat("batch", "-", "--concurrency", "3", stdin=lines(*[{"prompt": "x"}] * 12)).code == 0
    assert max(rows) == 3


def test_more_conversations_than_a_step_has_rows_by_default(termchat, scripted):
    scripted("One.")
    outcome = termchat("batch", "-", "--concurrency", "2000", stdin=lines({"prompt": "x"}))
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["seed"] < 2**53


def test_a_closed_pipe_stops_the_batch_quietly(scripted, monkeypatch):
    scripted(*["word " * 1000] * 40, step_seconds=0.005)
    read, write = os.pipe()
    errors_read, errors_write = os.pipe()
    source, sink = os.pipe()
    os.write(sink, lines(*[{"prompt": "x"}] * 40))
    os.close(sink)
    begun, launch = threading.Event(), ScriptedRunner.launch
    monkeypatch.setattr(ScriptedRunner, "launch", lambda *a, **k: (begun.set(), launch(*a, **k))[1])
    reader = threading.Thread(target=lambda: (begun.wait(60), os.close(read)))
    reader.start()
    console = Console(Output(write), Messages(errors_write), stdin=source)
    assert run(["batch", "-", "--concurrency", "2"], console) == 141
    reader.join()
    os.close(write)
    os.close(errors_write)
    with open(errors_read) as errors:
        assert errors.read() == ""


def test_standard_input_must_hold_something(scripted):
    with open("/dev/null", "r+b") as null:
        console = Console(
            Output(null.fileno()),
            Messages(null.fileno()),
            stdin=null.fileno(),
            closed=frozenset({null.fileno()}),
        )
        assert run(["batch", "-"], console) == 2


def test_lines_that_are_too_long_are_passed_over(monkeypatch):
    monkeypatch.setattr("termchat.cli.batch.lines.LIMIT_BYTES", 32)
    file = io.BytesIO(
        b'{"prompt": "a"}\n' + b"x" * 100 + b"\n\n" + b'{"prompt": "b"}\n' + b"y" * 32 + b"\nlast"
    )
    found = list(read_lines(file))
    assert found == [(0, b'{"prompt": "a"}\n'), (1, None), (3, b'{"prompt": "b"}\n'), (4, None), (5, b"last")]
    assert isinstance(parse_line(1, None), BadLine)


def test_parse_line_keeps_text_exactly():
    job = parse_line(0, '\ufeff{"prompt": "é\\u0000\\r\\n 🫠 "}'.encode(), raw=True)
    assert isinstance(job, Job)
    assert job.prompt == "é\0\r\n 🫠 "
