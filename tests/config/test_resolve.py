"""Settings: precedence with provenance, and one clear line for every slip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from p2pnode.config.resolve import (
    changed,
    from_environment,
    from_flags,
    from_toml,
    resolve,
    unknown_variables,
)
from p2pnode.config.settings import SETTINGS
from p2pnode.node.load import load
from p2pnode.wire.addresses import EXAMPLE, parse_address
from p2pnode.wire.errors import UsageError
from p2pnode.wire.invite import Invite, encode_invite
from p2pnode.wire.run import RunAccess

RUN = "abcdefghijklmnopqrstuvwxyz"
KEY = "abcdefghijklmnopqrstuvwxyz234567"
INVITE = Invite(RunAccess.parse(f"abcdefghijklmnopqrstuvwxya.{KEY}"), (parse_address(EXAMPLE),))
CODE = encode_invite(INVITE)


def resolved(flags=None, environ=None, toml=None):
    sources = [from_flags(flags or {}), from_environment(environ or {}), from_toml(toml or {}, "config.toml")]
    return resolve(sources, Path("/data"))


def problem(**sources):
    with pytest.raises(UsageError) as caught:
        resolved(**sources)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults_need_nothing():
    config = resolved().options
    assert config.data_dir == Path("/data")
    assert config.name is None
    assert config.run.bootstrap == ()
    assert config.run.access is None
    assert config.output.log_format == "auto"


def test_flag_beats_environment_beats_toml_beats_default():
    toml = {"name": "toml", "quiet": True, "log-format": "json"}
    environ = {"P2PNODE_NAME": "environ", "P2PNODE_LOG_FORMAT": "plain"}
    result = resolved({"name": "flag"}, environ, toml)
    assert result.options.name == "flag"
    assert result.options.output.log_format == "plain"
    assert result.options.output.quiet is True
    assert result.options.network.reachability == "auto"
    assert result.origins["name"] == "--name"
    assert result.origins["log-format"] == "P2PNODE_LOG_FORMAT"
    assert result.origins["quiet"] == "config.toml: quiet"
    assert result.origins["reachability"] == "default"


def test_every_setting_can_come_from_every_source():
    given = {
        "name": "otter", "data-dir": "/elsewhere", "bootstrap": EXAMPLE, "run": RUN, "found": "true",
        "private": "true", "invite": CODE, "join-timeout": "2.5", "listen": "/ip4/127.0.0.1/tcp/0",
        "announce": "/ip4/203.0.113.7/tcp/1", "no-listen": "yes", "no-lan": "yes", "reachability": "public",
        "log-format": "json",
        "quiet": "1", "task": "gpt", "task-option": "hidden=64,depth=2", "accept-task": "0f" * 32,
        "data": "/corpus", "device": "cpu",
        "policy": "gossip", "set": "density=0.01", "round-seconds": "0.5", "split": "dirichlet:0.3", "part": "2/4",
        "aim": "own", "until": "time:30m", "meet-only": "yes", "max-disk": "2GB", "dashboard": "8080",
        "max-upload": "500k", "max-download": "2M", "max-cpu": "50%", "pause-on-battery": "yes", "idle-only": "on",
        "schedule": "22:00-07:00", "tensorboard": "/curves",
        "job": "small=digits,hidden=8", "model": "wide=digits,hidden=8", "paths": "2x2", "only": "small,wide",
        "serve-only": "yes", "moderators": "none",
        "leave-timeout": "5", "share-data": "yes", "reserve": "yes", "quarantine": "off", "full-speed": "yes",
            "no-model-swaps": "yes",
    }  # fmt: skip
    assert set(given) == set(SETTINGS)
    together = {
        "split": {"part": "1/2"},
        "part": {"split": "iid"},
        "share-data": {"data": "/corpus"},
    }  # one needs the other
    for key, raw in given.items():
        by_flag = resolved(flags={key: raw, **together.get(key, {})})
        by_environment = resolved(flags=together.get(key, {}), environ={SETTINGS[key].variable: raw})
        by_toml = resolved(flags=together.get(key, {}), toml={key: raw})
        assert by_flag.options == by_environment.options == by_toml.options != resolved().options
        assert by_flag.origins[key] == f"--{key}"


def test_an_invite_is_the_run_and_its_addresses():
    other = EXAMPLE.replace("203.0.113.7", "198.51.100.1")
    run = resolved({"invite": CODE, "bootstrap": [other]}).options.run
    assert (run.access, run.invite) == (INVITE.access, INVITE)
    assert run.bootstrap == (parse_address(other), *INVITE.addresses)


def test_values_list_every_setting_in_order():
    values = resolved(flags={"name": "x"}).values()
    assert [key for key, _, _ in values] == list(SETTINGS)
    assert ("name", "x", "--name") in values


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("8080", ("127.0.0.1", 8080)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:8080", ("::1", 8080)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_the_page_is_on_loopback_unless_a_host_is_given(text, place):
    assert resolved(flags={"dashboard": text}).options.output.dashboard == place


@pytest.mark.parametrize("text", ["", "x", "65536", "-1", "host:", "http://127.0.0.1:80", "a b:80", "me@host:80", "²"])
def test_a_page_that_cannot_be_is_one_clear_line(text):
    with pytest.raises(UsageError, match="8080"):
        resolved(flags={"dashboard": text})


@pytest.mark.parametrize("separator", [",", " ", ", ", "\n"])
def test_bootstrap_variable_takes_several(separator):
    other = EXAMPLE.replace("203.0.113.7", "203.0.113.8")
    addresses = resolved(environ={"P2PNODE_BOOTSTRAP": separator.join([EXAMPLE, other, EXAMPLE])}).options.run.bootstrap
    assert [address.text for address in addresses] == [EXAMPLE, other]


def test_listen_takes_a_bare_port():
    assert resolved(toml={"listen": 31337}).options.network.listen == ("/ip4/0.0.0.0/tcp/31337",)
    assert resolved(flags={"listen": ["31337"]}).options.network.listen == ("/ip4/0.0.0.0/tcp/31337",)


def test_an_empty_variable_is_not_set():
    assert resolved(environ={"P2PNODE_NAME": " ", "P2PNODE_RUN": ""}).options == resolved().options


def test_toml_keys_may_have_underscores():
    assert resolved(toml={"join_timeout": 3}).options.run.join_timeout == 3.0


@pytest.mark.parametrize(
    ("raw", "options"),
    [
        (["a-b=1", "a_c = x=y"], {"a_b": "1", "a_c": "x=y"}),
        ("a-b=1, c=2 d=3,", {"a_b": "1", "c": "2", "d": "3"}),
        (["a=one, two", "a-b=1", "a_b=2"], {"a": "one, two", "a_b": "2"}),
        ({"a-b": 1, "c": "x y"}, {"a_b": "1", "c": "x y"}),
        (" ,", {}),
    ],
)
def test_pairs_have_dashes_or_underscores_and_any_value_wherever_they_come_from(raw, options):
    assert dict(SETTINGS["task-option"].read(raw)) == options


@pytest.mark.parametrize(
    "raw", ["hidden", ["=3"], [f"k{key}=1" for key in range(33)], {f"k{key}": 1 for key in range(33)}]
)
def test_pairs_that_are_none_or_too_many_are_refused(raw):
    with pytest.raises(UsageError, match=r"KEY=VALUE|too many"):
        SETTINGS["task-option"].read(raw)


def test_private_run_key_is_read():
    access = resolved(flags={"run": f"{RUN}.{KEY}"}).options.run.access
    assert access is not None
    assert access.private
    assert str(access) == f"{RUN}.{KEY}"


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"flags": {"bootstrap": ["example.org:31337"]}}, ["--bootstrap", "not an address", EXAMPLE]),
        ({"environ": {"P2PNODE_BOOTSTRAP": "/ip4/1.2.3.4/tcp/9"}}, ["P2PNODE_BOOTSTRAP", "peer id", EXAMPLE]),
        ({"toml": {"bootstrap": ["/ip4/999.2.3.4/tcp/9"]}}, ["config.toml: bootstrap", EXAMPLE]),
        ({"toml": {"bootstrap": EXAMPLE[:-4]}}, ["not an address", EXAMPLE]),
        ({"toml": {"bootstrap": [1, 2]}}, ["list of text"]),
        ({"toml": {"bootsrap": []}}, ["unknown key 'bootsrap'", "did you mean 'bootstrap'?"]),
        ({"toml": {"zzz": 1}}, ["unknown key 'zzz'", "known are"]),
        ({"toml": {"log-format": "json", "log_format": "json"}}, ["given twice"]),
        ({"toml": {"name": 7}}, ["config.toml: name", "text is needed, not a number"]),
        ({"toml": {"quiet": "perhaps"}}, ["neither true nor false"]),
        ({"toml": {"quiet": 3}}, ["true or false is needed"]),
        ({"toml": {"name": {"a": 1}}}, ["not a table"]),
        ({"flags": {"name": "x" * 41}}, ["--name", "41 characters", "40"]),
        ({"flags": {"name": "a\x1b[31mb"}}, ["\\x1b", "cannot be shown"]),
        ({"flags": {"name": "a\u202eb"}}, ["cannot be shown"]),
        ({"flags": {"name": "  "}}, ["empty"]),
        ({"flags": {"run": "short"}}, ["--run", "not a run id", "invite"]),
        ({"environ": {"P2PNODE_RUN": "short"}}, ["P2PNODE_RUN", "not a run id"]),
        ({"flags": {"join-timeout": "soon"}}, ["--join-timeout", "'soon'", "30"]),
        ({"flags": {"join-timeout": "-1"}}, ["not a time", "30s"]),
        ({"flags": {"join-timeout": "nan"}}, ["not a time"]),
        ({"flags": {"join-timeout": "inf"}}, ["not a time"]),
        ({"flags": {"join-timeout": "0"}}, ["above zero"]),
        ({"toml": {"join-timeout": True}}, ["true or false is not a time"]),
        ({"flags": {"log-format": "xml"}}, ["--log-format", "auto, rich, plain, json"]),
        ({"flags": {"reachability": "maybe"}}, ["auto, public, private"]),
        ({"flags": {"listen": ["70000"]}}, ["--listen", "70000"]),
        ({"flags": {"listen": [EXAMPLE]}}, ["--listen", "not an address to listen on"]),
        ({"flags": {"announce": ["31337"]}}, ["--announce", "not an address"]),
        ({"flags": {"announce": ["/ip4/0.0.0.0/tcp/31337"]}}, ["cannot be dialled"]),
        ({"flags": {"announce": ["/ip4/203.0.113.7/tcp/0"]}}, ["cannot be dialled"]),
        ({"flags": {"found": True, "run": RUN}}, ["--found contradicts --run"]),
        ({"flags": {"private": True, "run": RUN}}, ["--private contradicts --run"]),
        ({"flags": {"invite": CODE, "found": True}}, ["--invite contradicts --found"]),
        ({"flags": {"run": RUN}, "environ": {"P2PNODE_INVITE": CODE}}, ["P2PNODE_INVITE contradicts --run"]),
        ({"environ": {"P2PNODE_INVITE": CODE[:-1] + "x"}}, ["P2PNODE_INVITE: the invite", "should be"]),
        ({"flags": {"private": True, "bootstrap": [EXAMPLE]}}, ["--private", "add --found"]),
        ({"flags": {"no-listen": True}, "toml": {"listen": "1"}}, ["--no-listen contradicts config.toml: listen"]),
        ({"flags": {"no-listen": True, "announce": ["/ip4/203.0.113.7/tcp/1"]}}, ["contradicts --announce"]),
        ({"flags": {"no-listen": True, "reachability": "public"}}, ["contradicts --reachability"]),
        ({"flags": {"meet-only": True, "until": "rounds:3"}}, ["--meet-only contradicts --until"]),
        ({"flags": {"meet-only": True, "no-model-swaps": True}}, ["contradicts --no-model-swaps", "only meet"]),
        ({"flags": {"meet-only": True}, "environ": {"P2PNODE_RESERVE": "1"}}, ["contradicts P2PNODE_RESERVE"]),
        ({"environ": {"P2PNODE_BOOTSTRAP": " ".join([EXAMPLE] * 65)}}, ["65 values are too many"]),
    ],
)  # fmt: skip
def test_slips_are_named_with_a_remedy(sources, words):
    text = problem(**sources)
    for word in words:
        assert word in text


def test_a_weaker_source_is_checked_too():
    """A broken config.toml is said at once, not on the day the flag is left out."""
    assert "log-format" in problem(flags={"log-format": "json"}, toml={"log-format": "xml"})


def test_unknown_variables_are_noticed():
    lines = unknown_variables({"P2PNODE_BOOTSRAP": "x", "P2PNODE_NAME": "y", "P2PNODE_CONFIG": "z", "HOME": "/"})
    assert lines == ["P2PNODE_BOOTSRAP is not a setting; did you mean 'P2PNODE_BOOTSTRAP'?"]


# ---- files ----


def test_config_toml_of_the_data_directory_is_read(tmp_path):
    (tmp_path / "config.toml").write_text('name = "from the file"\n')
    result = load({"data-dir": str(tmp_path)}, {})
    assert result.options.name == "from the file"
    assert result.origins["name"] == f"{tmp_path}/config.toml: name"


def test_config_flag_replaces_it_and_may_say_where_data_goes(tmp_path):
    (tmp_path / "other.toml").write_text(f'data-dir = "{tmp_path}/there"\nquiet = true\n')
    for flags, environ in (
        ({"config": str(tmp_path / "other.toml")}, {}),
        ({}, {"P2PNODE_CONFIG": str(tmp_path / "other.toml")}),
    ):
        result = load(flags, environ)
        assert result.options.data_dir == tmp_path / "there"
        assert result.options.output.quiet


def test_data_directory_cannot_move_itself(tmp_path):
    (tmp_path / "config.toml").write_text('data-dir = "/elsewhere"\n')
    with pytest.raises(UsageError, match="cannot be set inside"):
        load({"data-dir": str(tmp_path)}, {})


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe", b"[" * 5000, b"name = 'a'\nname = 'b'\n"])
def test_broken_toml_is_one_line(tmp_path, content):
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(UsageError, match="is not TOML") as caught:
        load({"data-dir": str(tmp_path)}, {})
    assert "\n" not in str(caught.value)


def test_missing_named_config_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="cannot read the configuration"):
        load({"config": str(tmp_path / "nothing.toml")}, {})
    with pytest.raises(UsageError, match="cannot read the configuration"):
        load({"config": str(tmp_path)}, {})


def test_data_directory_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert load({"data-dir": "~/x"}, {}).options.data_dir == tmp_path / "x"
    assert load({"data-dir": "y"}, {}).options.data_dir == tmp_path / "y"


# ---- limits ----


@pytest.mark.parametrize(
    ("text", "rate"), [("500k", 500e3), ("2M", 2e6), ("2MB/s", 2e6), ("1.5 mb", 1.5e6), ("32000", 32e3), (64000, 64e3)]
)
def test_rates_are_bytes_a_second(text, rate):
    assert resolved(toml={"max-upload": text, "max-download": text}).options.limits.max_upload == rate


@pytest.mark.parametrize(
    ("text", "share"), [("50%", 0.5), ("0.5", 0.5), (0.25, 0.25), ("100%", 1.0), (1, 1.0), ("1%", 0.01)]
)
def test_a_share_of_the_machine(text, share):
    assert resolved(toml={"max-cpu": text}).options.limits.max_cpu == share


def test_a_schedule_may_be_a_list():
    schedule = resolved(toml={"schedule": ["22:00-07:00", "12:00-13:00"]}).options.limits.schedule
    assert str(schedule) == "22:00-07:00,12:00-13:00"


WRONG: dict[str, tuple[object, ...]] = {
    "max-upload": ("", "fast", "-1", "0", "31999", "1k", "2X", "nan", "inf", "9999T", True, [], 2.5),
    "max-download": ("5", "1kk", {}),
    "max-cpu": ("", "half", "0", "0%", "101%", "50", "-1", "nan", True, []),
    "schedule": ("", "night", "22-7", "22:00-22:00", 22, [22], {}),
    "pause-on-battery": ("maybe", 3),
    "idle-only": ("maybe", 3),
}


@pytest.mark.parametrize(("key", "wrong"), [(key, raw) for key, values in WRONG.items() for raw in values])
def test_a_limit_that_cannot_be_is_one_clear_line(key, wrong):
    assert problem(toml={key: wrong}).startswith(f"config.toml: {key}: ")
    assert len(problem(toml={key: wrong})) < 200


def test_limits_are_written_anew_one_by_one():
    before = resolved(flags={"max-upload": "1M", "idle-only": "yes"}).options.limits
    after = changed(before, {"max-upload": "off", "max-cpu": "20%"})
    assert after == replace(before, max_upload=None, max_cpu=0.2)
    assert changed(after, {"idle-only": "off"}) == replace(after, idle_only=False)
    for wrong in ({"max-upload": "much"}, {"max-dowload": "1M"}, {"name": "x"}):
        with pytest.raises(UsageError):
            changed(before, wrong)
