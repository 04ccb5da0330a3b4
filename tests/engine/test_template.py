import tomllib
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.loading.gguf import read_gguf
from engine.tokenization import DEFAULT_TEMPLATE, alternate, render_chat
from engine.tokenization.forms import without_system
from engine.types import EngineError, Message

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
TALK = [Message(USER, "Hi"), Message(ASSISTANT, "Hello"), Message(USER, "Bye")]
STRICT = (
    "{% for m in messages %}"
    "{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no such role') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "[{{ m.role }}:{{ m.content }}]"
    "{% endfor %}"
)


def refused(template: str | None, messages: list[Message] = TALK, **options: Any) -> str:
    with pytest.raises(EngineError) as caught:
        render_chat(template, messages, **options)
    assert caught.value.code == "template"
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    return caught.value.message


def test_B015_template_of_the_default_model(default_model: Path):
    template = read_gguf(default_model).metadata["tokenizer.chat_template"]
    assert render_chat(template, [Message(USER, "Count from 1 to 10.")]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nCount from 1 to 10.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_B015_no_template_is_a_clear_refusal():
    assert "no chat template" in refused(None)


def test_default_template():
    assert render_chat(DEFAULT_TEMPLATE, TALK) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render_chat(DEFAULT_TEMPLATE, TALK, add_generation_prompt=False).endswith("Bye<|im_end|>\n")


def test_messages_may_be_mappings():
    plain = [{"role": m.role, "content": m.content} for m in TALK]
    assert render_chat(DEFAULT_TEMPLATE, plain) == render_chat(DEFAULT_TEMPLATE, TALK)


# Constructs that chat templates in circulation are made of; Hugging Face's own renderer is the reference.
CONSTRUCTS = tomllib.loads(Path(__file__).with_name("template_constructs.toml").read_text())
TOOL = {"type": "function", "function": {"name": "f", "description": "é", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_constructs_as_hugging_face_renders_them(name: str):
    messages = [
        {"role": USER, "content": "  First \n"},
        {"role": ASSISTANT, "content": "<think>\nhm\n</think>\n\nAnswer"},
        {"role": USER, "content": "Zwei é 漢"},
    ]
    variables = {"bos_token": "<s>", "tools": [TOOL], "enable_thinking": False}
    for prompt in (True, False):
        (expected,), _ = render_jinja_template(
            [messages], chat_template=CONSTRUCTS[name], add_generation_prompt=prompt, **variables
        )
        assert render_chat(CONSTRUCTS[name], messages, add_generation_prompt=prompt, **variables) == expected


def test_continue_final_ends_with_the_content():
    talk = [Message(USER, "Count"), Message(ASSISTANT, "1, 2, ")]
    assert render_chat(DEFAULT_TEMPLATE, talk, continue_final=True) == (
        "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n1, 2, "
    )
    assert render_chat("{{ messages[-1].content|trim }}</s>", talk, continue_final=True) == "1, 2, "
    assert (
        render_chat("{{ messages[-1].content.split('</think>')[-1] }}.", talk, continue_final=True)
        == "1, 2, "
    )
    assert render_chat(DEFAULT_TEMPLATE, [*talk[:1], Message(ASSISTANT, "")], continue_final=True).endswith(
        "assistant\n"
    )


def test_continue_final_needs_an_assistant_turn_that_is_shown():
    assert "can be continued" in refused(DEFAULT_TEMPLATE, TALK, continue_final=True)
    assert "can be continued" in refused(DEFAULT_TEMPLATE, [], continue_final=True)
    assert "leaves out" in refused("{{ messages[0].content }}", TALK[:2], continue_final=True)


def test_alternate():
    talk = [
        Message(SYSTEM, "s"),
        Message(USER, "a"),
        Message(ASSISTANT, ""),
        Message(USER, "b"),
        Message(ASSISTANT, "c"),
        Message(ASSISTANT, "d"),
    ]
    before = list(talk)
    assert alternate(talk) == [Message(SYSTEM, "s"), Message(USER, "a\n\nb"), Message(ASSISTANT, "c\n\nd")]
    assert talk == before
    assert alternate(alternate(talk)) == alternate(talk)
    assert alternate([]) == []


def test_without_system():
    talk = [Message(SYSTEM, "s"), Message(USER, "a"), Message(ASSISTANT, "b"), Message(USER, "c")]
    assert without_system(talk) == [Message(USER, "s\n\na"), *talk[2:]]
    assert without_system(talk[:1]) == [Message(USER, "s")]
    assert without_system(talk[1:]) == talk[1:]


def test_B017_cancelled_reply_does_not_kill_the_conversation():
    cancelled = [Message(USER, "a"), Message(ASSISTANT, ""), Message(USER, "b")]
    assert render_chat(STRICT, cancelled) == "[user:a][assistant:][user:b]"
    assert render_chat(STRICT, [Message(USER, "a"), Message(USER, "b")]) == "[user:a\n\nb]"
    partial = [Message(USER, "a"), Message(ASSISTANT, "half"), Message(USER, "b")]
    assert render_chat(STRICT, partial) == "[user:a][assistant:half][user:b]"


def test_system_turn_for_a_template_without_one():
    assert render_chat(STRICT, [Message(SYSTEM, "s"), Message(USER, "a")]) == "[user:s\n\na]"


DROPS = "{% for m in messages if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
PARTS = (
    "{% for m in messages %}[{{ m.role }}:"
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}]"
    "{% endfor %}"
)
FIRST_PART = "{% for m in messages %}[{{ m.content[0].text + '!' }}]{% endfor %}"


def test_system_turn_that_a_template_leaves_out_goes_with_the_user():
    """Its words may look otherwise in the text, so only what never comes is put elsewhere."""
    talk = [Message(SYSTEM, "s"), Message(USER, "a"), Message(ASSISTANT, "b"), Message(USER, "c")]
    assert render_chat(DROPS, talk) == "[user:s\n\na][assistant:b][user:c]"
    assert render_chat(DROPS, talk[1:]) == "[user:a][assistant:b][user:c]"
    upper = "{% for m in messages %}[{{ m.content|upper }}]{% endfor %}"
    assert render_chat(upper, talk) == "[S][A][B][C]"


def test_template_that_wants_contents_in_parts_gets_them():
    """Those of models that see pictures go through the parts of a content, and find none in a text."""
    talk = [Message(SYSTEM, "be"), Message(USER, "hi"), Message(ASSISTANT, "ho"), Message(USER, "ha")]
    assert render_chat(PARTS, talk) == "[system:be][user:hi][assistant:ho][user:ha]"
    assert render_chat(PARTS, talk[:3], continue_final=True) == "[system:be][user:hi][assistant:ho"
    assert render_chat(FIRST_PART, talk) == "[be!][hi!][ho!][ha!]"
    both = "{% if m is string %}{% endif %}" + PARTS.replace("messages", "messages if m.role != 'system'")
    assert render_chat(both, talk[:2]) == "[user:be\n\nhi]"


def test_template_that_leaves_out_all_is_rendered_as_it_is():
    assert render_chat("{{ messages|length }}", TALK) == "3"
    assert render_chat("{{ messages[-1].content }}", TALK, all_said=True) == "Bye"
    third = (
        "{% if messages|length < 3 %}{{ raise_exception('too few') }}{% endif %}{{ messages[-1].content }}"
    )
    assert render_chat(third, TALK, all_said=True) == "Bye"  # no trial says anything
    for template in (
        "<html>",
        "{{ messages|length }}",
        "{% for m in messages if m.role == 'system' %}{{ m }}{% endfor %}",
    ):
        assert refused(template, all_said=True) == "the chat template leaves out what the user says"


def test_messages_a_template_accepts_stay_as_they_are():
    twice = [Message(USER, "a"), Message(USER, "b")]
    assert render_chat("{% for m in messages %}[{{ m.content }}]{% endfor %}", twice) == "[a][b]"


def test_first_refusal_is_reported():
    message = refused("{{ raise_exception('reason ' ~ messages|length) }}", [Message(SYSTEM, "s"), *TALK])
    assert message == "the chat template refuses the conversation: reason 4"
    assert refused("{{ raise_exception('much\n' * 100) }}").startswith(
        "the chat template refuses the conversation: much much"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{% for %}",
        "{{ x.y.z }}",
        "{{ 1 / 0 }}",
        "{{ messages + 1 }}",
        "{{ nothing() }}",
        "{{ 'a'|nofilter }}",
    ],
)
def test_failing_template_is_one_sentence(template: str):
    assert refused(template).startswith("the chat template failed: ")


def test_variables_are_copied_plain_values():
    tools = [{"a": (1, 2)}]
    assert render_chat("{{ tools }}", TALK, tools=tools) == "[{'a': [1, 2]}]"
    assert "no plain value" in refused("x", TALK, secret=object())
    assert "no plain value" in refused("x", TALK, secret=[{"a": open}])


def test_time_format():
    assert render_chat("{{ strftime_now('%Y')|length }}", TALK) == "4"


B095 = [
    '{{ lipsum.__globals__["os"].popen("touch PWNED").read() }}',
    '{{ cycler.__init__.__globals__.os.popen("touch PWNED").read() }}',
    '{{ "".__class__.__mro__[1].__subclasses__() }}',
    "{{ messages.append(1) }}",
]


@pytest.mark.parametrize("template", B095)
def test_B095_code_in_templates_never_runs(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    talk = list(TALK)
    refused(template, talk)
    assert talk == TALK
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "expression",
    [
        '"".__class__',
        "messages.__class__",
        'messages["__class__"]',
        "messages[0].__init__",
        'messages|map(attribute="__class__")|list',
        'messages|sort(attribute="__class__")',
        'messages|selectattr("__class__")|list',
        '[messages]|join(attribute="__class__")',
        "namespace.__init__",
        "namespace(a=1)._Namespace__attrs",
        "raise_exception.__globals__",
        "strftime_now.__code__",
        "dict.fromkeys([1])",
        "dict.mro()",
        "range.__class__",
        "self.__init__",
        "self._TemplateReference__context",
        "loop.__init__",
        '"{0.__class__}".format(1)',
        '"{0.__class__}".format_map({})',
        '"a".encode()',
        '"a".center(9)',
        "messages.clear()",
        "messages.pop()",
        "messages[0].update(role=1)",
        "messages[0].setdefault(1, 2)",
        "(1).real",
        "joiner(',').sep",
    ],
)
def test_B095_attributes_are_allowed_by_name_only(expression: str):
    message = refused("{% for x in messages %}{{ " + expression + " }}{% endfor %}")
    assert message.startswith("the chat template is not allowed: the attribute")


@pytest.mark.parametrize(
    "template",
    [
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% block a %}{% endblock %}",
        "{% autoescape true %}{% endautoescape %}",
    ],
)
def test_B095_statements_no_chat_template_needs(template: str):
    assert refused(template).startswith("the chat template is not allowed: the statement")
