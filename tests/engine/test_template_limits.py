"""Templates that would need huge time or memory end in one sentence, and honest ones on long talks do not."""

import resource
import threading
import time

import pytest

from engine.tokenization import DEFAULT_TEMPLATE, budget, render_chat
from engine.tokenization.template import MAX_TEMPLATE
from engine.types import EngineError, Message

TALK = [Message("user", "Hi"), Message("assistant", "Hello")]
DOUBLING = (
    "{% set ns = namespace(x='aa') %}{% for i in range(200) %}{% set ns.x = VALUE %}{% endfor %}{{ ns.x }}"
)
TURNS = "{% for i in range(99999) %}{% for j in range(99999) %}WORK{% endfor %}{% endfor %}"

HOSTILE = {
    # numbers and repetition
    "repeat text": "{{ 'a' * 10**9 }}",
    "repeat text, reversed": "{{ 10**9 * 'a' }}",
    "repeat list": "{{ [1] * 10**9 }}",
    "power": "{{ 2 ** (2 ** 40) }}",
    "power of power": "{{ 10 ** 60 ** 60 }}",
    "huge product": DOUBLING.replace("'aa'", "3").replace("VALUE", "ns.x * ns.x"),
    "huge digits": "{{ ('f' * 4000000)|int(0, 16) % 12345 }}",
    "huge range": "{{ range(10**12)|list }}",
    # formatting
    "percent width": "{{ '%0999999999d' % 1 }}",
    "format width": "{{ '{:999999999}'.format(1) }}",
    "format filter": "{{ '%999999999s'|format(1) }}",
    "center": "{{ 'a'.center(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "indent": "{{ 'a'|indent(10**9) }}",
    "json indent": "{{ [1]|tojson(indent=10**9) }}",
    "json separators": "{{ range(60000)|list|tojson(separators=('a' * 100000, 'b')) }}",
    "round": "{{ 5|round(-10**9) }}",
    "time": "{{ strftime_now('%Y' * 1000) }}",
    "percent star": "{{ '%*d' % (10**9, 1) }}",
    "percent precision": "{{ '%.999999999f' % 1 }}",
    "percent of lists": DOUBLING.replace("'aa'", "[1]").replace("VALUE", "['%s' % ns.x, '%s' % ns.x]"),
    "many percents": "{{ ('%s' * 100000) % ((('a' * 100000),) * 100000) }}",
    "nested format": "{{ '{:{}}'.format(1, 10**9) }}",
    "format of items": "{{ '{0[a]}'.format({'a': 1}) }}",
    "format of attributes": "{{ '{0.x}'.format(namespace(x=1)) }}",
    "format of methods": "{{ '{}'.format('a'.join) }}",
    "format grows": DOUBLING.replace("VALUE", "'{0}{0}'.format(ns.x)"),
    "format map": "{{ '{a}'.format_map({'a': 1}) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "center filter": "{{ 'a'|center(10**9) }}",
    "batch": "{{ [1]|batch(10**9, 0)|list }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "sum of lists": "{{ [[1]]|sum(start=[]) }}",
    "sum of texts": "{{ ['a']|sum(start='') }}",
    "wrap": "{{ ('a b' * 2000000)|wordwrap(1) }}",
    "wrap with much": "{{ 'a b c'|wordwrap(1, wrapstring='x' * 100000) }}",
    "pretty": "{{ range(60000)|list|pprint }}",
    "many lines": "{{ ('\n' * 4000000).splitlines()|length }}",
    "groups": "{% for i in range(99999) %}{{ range(60000)|groupby('x')|length }}{% endfor %}",
    # each value of a collection
    "map center": "{{ (['a'] * 60000)|map('center', 4000000)|list|length }}",
    "map replace": "{{ (['a' * 100] * 60000)|map('replace', 'a', 'b' * 80000)|list|length }}",
    "map indent": "{{ ([('\n' * 100)] * 60000)|map('indent', 60, true, true)|list|length }}",
    "map batch": "{{ ([[1]] * 60000)|map('batch', 60000, 1)|list|length }}",
    "map format": "{{ (['%60d'] * 100000)|map('format', 1)|map('center', 4000)|list|length }}",
    # growth in loops
    "sum": DOUBLING.replace("VALUE", "ns.x + ns.x"),
    "concatenation": DOUBLING.replace("VALUE", "ns.x ~ ns.x"),
    "replace": DOUBLING.replace("VALUE", "ns.x.replace('a', 'aa')"),
    "replace filter": DOUBLING.replace("VALUE", "ns.x|replace('a', 'aa')"),
    "join": DOUBLING.replace("VALUE", "ns.x.join(['a', 'b', 'c'])"),
    "join filter": DOUBLING.replace("VALUE", "['a', 'b', 'c']|join(ns.x)"),
    "indent twice": DOUBLING.replace("'aa'", "'\n\n'").replace(
        "VALUE", "(ns.x ~ ns.x)|indent(60, true, true)"
    ),
    "lists": DOUBLING.replace("'aa'", "[1]").replace("VALUE", "[ns.x, ns.x]"),
    "tuples": DOUBLING.replace("'aa'", "(1,)").replace("VALUE", "(ns.x, ns.x)"),
    "dictionaries": DOUBLING.replace("'aa'", "{}").replace("VALUE", "{'a': ns.x, 'b': ns.x}"),
    "json": DOUBLING.replace("'aa'", "[1]").replace("VALUE", "[ns.x|tojson, ns.x|tojson]"),
    "list sum": DOUBLING.replace("'aa'", "[1]").replace("VALUE", "ns.x + ns.x"),
    "dict call": DOUBLING.replace("'aa'", "{}").replace("VALUE", "dict(a=ns.x, b=ns.x)"),
    "set blocks": "{% set a = 'aa' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60 + "{{ a }}",
    "filter blocks": "{% set a = 'aa' %}"
    + "{% set a %}{% filter upper %}{{ a }}{{ a }}{% endfilter %}{% endset %}" * 60,
    "output": "{% set a = 'a' * 100000 %}{% for i in range(99999) %}{{ a }}{% endfor %}",
    "macros": "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set a = 'aa' %}" + "{% set a = f(a) %}" * 60,
    "many lists": "{% set l = range(60000)|list %}" + "{% set m = l[1:] %}" * 2500,
    # time
    "nested loops": TURNS.replace("WORK", ""),
    "loops with output": TURNS.replace("WORK", "{{ '' }}"),
    "loops with filters": TURNS.replace("WORK", "{{ messages|length }}"),
    "filtered loop": TURNS.replace("WORK", "{% for k in range(99999) if k < 0 %}{% endfor %}"),
    "constant filter": TURNS.replace("WORK", "{% for k in range(99999) if false %}{% endfor %}"),
    "comparisons": "{% set l = range(60000)|list %}{% for i in range(99999) %}{{ l == l[:] }}{% endfor %}",
    "chain of maps": "{{ range(60000)" + "|map('string')" * 90 + "|list|length }}",
    "recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "exponential recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(50) }}",
    "recursive loop": "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "slow strip": "{% set a = 'a' * 4000000 %}{{ a.strip('b' * 2000000 ~ 'a') }}",
    "slow search": "{% set a = 'a' * 4000000 %}{{ a.rfind('b' ~ 'a' * 2000000) }}",
    "slow trim": "{% set a = 'a' * 4000000 %}{{ a|trim('b' * 2000000) }}",
    "many parts": "{{ ('a ' * 4000000).split()|length }}",
    "many words": "{{ ('a ' * 4000000)|title|length }}",
    "many characters": "{{ ('a' * 4000000)|sort|length }}",
    # the parser
    "parentheses": "{{ " + "(" * 5000,
    "nested ifs": "{% if x %}" * 2000,
    "long sum": "{{ " + "+".join("1" * 5000) + " }}",
    "nots": "{{ " + "not " * 5000 + "x }}",
    "long template": "x" * (MAX_TEMPLATE + 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_template_is_refused(name: str):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EngineError) as caught:
        render_chat(HOSTILE[name], TALK)
    assert caught.value.code == "template"
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


def test_clock_is_looked_at_while_values_are_selected(monkeypatch: pytest.MonkeyPatch):
    """None of them is, so nothing but the tests themselves tells that time goes by."""
    monkeypatch.setattr(budget, "_SECONDS", 0.2)
    started = time.process_time()
    with pytest.raises(EngineError, match=r"more than 0.2 seconds"):
        render_chat("{{ (['b'] * 60000)|select('in', 'a' * 4000000)|list|length }}", TALK)
    assert time.process_time() - started < 4


def test_clock_is_the_last_resort(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(budget, "_SECONDS", 0.2)
    with pytest.raises(EngineError, match=r"more than 0.2 seconds"):
        render_chat(
            "{% set l = range(60000)|list %}{% for i in range(9999) %}{{ 'x' in l }}{% endfor %}", TALK
        )


@pytest.mark.slow
def test_all_attempts_share_one_budget(monkeypatch: pytest.MonkeyPatch):
    """A template that burns most of its time in each form of the conversation, and then refuses it."""
    monkeypatch.setattr(budget, "_SECONDS", 1.0)
    burn = "{% for i in range(12000) %}{{ 'x' in l }}{% endfor %}{{ raise_exception('no') }}"
    started = time.process_time()
    talk = [Message("system", "s"), *TALK, Message("user", "a"), Message("user", "b")]
    with pytest.raises(EngineError, match=r"steps|more than 1 seconds|refuses"):
        render_chat("{% set l = range(60000)|list %}" + burn, talk)
    assert time.process_time() - started < 4


GROWING = (
    "{% set ns = namespace(text='') %}{% for m in messages %}"
    "{% set ns.text = ns.text ~ '<' ~ m.role ~ '>' ~ m.content|trim ~ '\n' %}{% endfor %}{{ ns.text }}"
)
LOOKING_BACK = (
    "{% for m in messages %}{% set i = loop.index0 %}{% set ns = namespace(n=0) %}"
    "{% for other in messages[:i] %}{% if other.role == m.role and not other.tool_calls %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.n }} {% endfor %}"
)


@pytest.mark.slow
def test_601_turns_of_2000_characters():
    talk = [Message("user" if i % 2 == 0 else "assistant", "word " * 400) for i in range(601)]
    assert len(render_chat(GROWING, talk)) > 1_200_000
    assert render_chat(LOOKING_BACK, talk).split()[-1] == "300"


def test_a_growing_text_does_not_open_the_way_to_much_memory():
    talk = [Message("user" if i % 2 == 0 else "assistant", "word " * 400) for i in range(601)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = "{% set ns = namespace(l=[], t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.content %}"
    with pytest.raises(EngineError, match=r"too much memory|characters; "):
        render_chat(kept + "{% set ns.l = ns.l + [ns.t] %}{% endfor %}{{ ns.l|length }}", talk)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 << 10


def test_namespaces_that_hold_each_other_are_not_written_out():
    template = DOUBLING.replace("'aa'", "1").replace("VALUE", "namespace(a=ns.x, b=ns.x)")
    assert render_chat(template, TALK) == "namespace"


def test_limits_hold_while_compiling_too():
    """Constant expressions are worked out while rendering, under the budget, not by the compiler."""
    with pytest.raises(EngineError, match="not allowed"):
        render_chat("{% if false %}{{ 'a' * 10**9 }}{% endif %}{{ 'b' * 10**9 }}", TALK)
    assert render_chat("{% if false %}{{ 'a' * 10**9 }}{% endif %}fine", TALK) == "fine"


LONG = [Message("user" if i % 2 == 0 else "assistant", f"message {i} " * 20) for i in range(2000)]


@pytest.mark.parametrize(
    "template",
    [
        DEFAULT_TEMPLATE,
        "{% set ns = namespace(l=[]) %}"
        "{% for m in messages %}{% set ns.l = ns.l + [m] %}{% endfor %}{{ ns.l|length }}",
        "{% set ns = namespace(t='') %}"
        "{% for m in messages %}{% set ns.t = ns.t ~ m.content[:9] %}{% endfor %}{{ ns.t }}",
        "{% for m in messages %}{% if loop.index0 != messages|length - 1 %}"
        "{{ messages[loop.index0 + 1].role }}{% endif %}{% endfor %}",
        "{% for m in messages %}{% set c = m.content.split('e') %}"
        "{{ c|join('E')|trim|upper|replace('M', 'm') }}{% endfor %}",
        "{% for m in messages[::-1] %}{% if m.role == 'user' and not m.content.startswith('<') %}"
        "{{ m|tojson }}{% endif %}{% endfor %}",
    ],
)
def test_honest_templates_render_long_conversations(template: str):
    assert len(render_chat(template, LONG)) > 3


def test_long_message():
    text = "word " * 400_000
    assert render_chat("{{ messages[0].content|trim }}!", [Message("user", text)]) == text.strip() + "!"


@pytest.mark.slow
def test_budgets_of_threads_are_their_own():
    results: list[object] = []

    def render(template: str) -> None:
        try:
            results.append(render_chat(template, LONG[:200]))
        except EngineError as error:
            results.append(error.code)

    templates = [DEFAULT_TEMPLATE, HOSTILE["nested loops"]] * 3
    threads = [threading.Thread(target=render, args=[template]) for template in templates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results, key=str) == sorted(
        ["template"] * 3 + [render_chat(DEFAULT_TEMPLATE, LONG[:200])] * 3
    )
